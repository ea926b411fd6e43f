"""One instance of a service: where it is, what it says about itself, whether it takes work.

The value only. How it is written in a store is `curator_json` and
`catalog_services`, how it stays there `registration`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from pliska.discovery.errors import ServiceUsageError

NAME_CHARACTERS_MAX = 63
ID_CHARACTERS_MAX = 127
ADDRESS_CHARACTERS_MAX = 253
"""The longest name that DNS allows."""
PORT_MAX = 65_535
WEIGHT_MAX = 65_535
"""Consul's; Curator has no weights."""
TAGS_MAX = 32
TAG_CHARACTERS_MAX = 64
METADATA_ENTRIES_MAX = 64
"""Consul's, as are the limits on keys and values."""
METADATA_KEY_CHARACTERS_MAX = 128
METADATA_VALUE_CHARACTERS_MAX = 512

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_METADATA_KEY = re.compile(r"[A-Za-z0-9_-]+")


class InstanceState(StrEnum):
    """Whether an instance takes new work."""

    UP = "up"
    DRAINING = "draining"
    """It finishes what it has and takes nothing new."""
    FAILING = "failing"
    """It is registered, but its probe fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One process that offers a service.

    Attributes:
        service: 1 to 63 letters, digits, '.', '_' and '-', not beginning with a mark.
        id: Unique within the service; likewise, up to 127, and ':' allowed.
        address: Host name or IP address.
        port: TCP port, 0 for none.
        metadata: Short texts by short names.
        tags: Words to select by.
        zone: Where it runs, for zone-aware balancing; empty when it does not matter.
        weight: Share of the work in comparison with other instances, 1 to `WEIGHT_MAX`.
        state: Whether it takes new work.

    Raises:
        ServiceUsageError: A field is malformed.
    """

    service: str
    id: str
    address: str
    port: int = 0
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tags: tuple[str, ...] = ()
    zone: str = ""
    weight: int = 1
    state: InstanceState = InstanceState.UP

    def __post_init__(self) -> None:
        check_service_name(self.service)
        check_instance_id(self.id)
        _require(
            0 < len(self.address) <= ADDRESS_CHARACTERS_MAX
            and self.address.isprintable()
            and not any(c.isspace() or c == "/" for c in self.address),
            f"{self.address[:80]!r} is no host name and no IP address",
        )
        _require(0 <= self.port <= PORT_MAX, f"{self.port} is no port: 0 to {PORT_MAX}")
        _require(1 <= self.weight <= WEIGHT_MAX, f"{self.weight} is no weight: 1 to {WEIGHT_MAX}")
        _require(
            len(self.zone) <= TAG_CHARACTERS_MAX and self.zone.isprintable(),
            f"{self.zone[:80]!r} is no zone: up to {TAG_CHARACTERS_MAX} printable characters",
        )
        self._check_tags()
        self._check_metadata()

    @property
    def endpoint(self) -> str:
        """`address:port`, with brackets around an IPv6 address."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}" if self.port else host

    @property
    def takes_work(self) -> bool:
        """Whether new work may be sent to it."""
        return self.state is InstanceState.UP

    def drained(self) -> "Instance":
        """The same instance, taking no new work."""
        return replace(self, state=InstanceState.DRAINING)

    def _check_tags(self) -> None:
        _require(len(self.tags) <= TAGS_MAX, f"{len(self.tags)} tags; at most {TAGS_MAX}")
        for tag in self.tags:
            _require(
                0 < len(tag) <= TAG_CHARACTERS_MAX and tag.isprintable(),
                f"{tag[:80]!r} is no tag: 1 to {TAG_CHARACTERS_MAX} printable characters",
            )

    def _check_metadata(self) -> None:
        _require(
            len(self.metadata) <= METADATA_ENTRIES_MAX,
            f"{len(self.metadata)} entries of metadata; at most {METADATA_ENTRIES_MAX}",
        )
        for key, value in self.metadata.items():
            _require(
                fits_metadata(key, value),
                f"the metadata {key[:80]!r} does not fit: a name of letters, digits, '_' and '-' "
                f"and a text of at most {METADATA_VALUE_CHARACTERS_MAX} printable characters",
            )


def fits_metadata(key: str, value: str) -> bool:
    """Whether every store can hold this entry of metadata."""
    return (
        len(key) <= METADATA_KEY_CHARACTERS_MAX
        and _METADATA_KEY.fullmatch(key) is not None
        and len(value) <= METADATA_VALUE_CHARACTERS_MAX
        and value.isprintable()
    )


def check_service_name(name: str) -> None:
    """Refuse what cannot name a service. Raises `ServiceUsageError`."""
    _require(
        len(name) <= NAME_CHARACTERS_MAX and _NAME.fullmatch(name) is not None,
        f"{name[:80]!r} cannot name a service: write 1 to {NAME_CHARACTERS_MAX} letters, digits, "
        "'.', '_' and '-', beginning with a letter or digit",
    )


def check_instance_id(instance_id: str) -> None:
    """Refuse what cannot be the id of an instance. Raises `ServiceUsageError`."""
    _require(
        len(instance_id) <= ID_CHARACTERS_MAX and _ID.fullmatch(instance_id) is not None,
        f"{instance_id[:80]!r} cannot be the id of an instance: write 1 to {ID_CHARACTERS_MAX} "
        "letters, digits, '.', '_', ':' and '-', beginning with a letter or digit",
    )


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ServiceUsageError(problem)
