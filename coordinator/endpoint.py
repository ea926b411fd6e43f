"""Where a coordinator listens, as it is written into its record of the election.

The store is the root of trust for the address: the record carries the
coordinator's own certificate, and whoever connects accepts that one only. A
worker that donates tells its own with the signed hello instead.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pliska.coordinator.errors import DamagedStateError

ENDPOINT_BYTES_MAX = 16 * 1024

_HOST = re.compile(r"[0-9A-Za-z_.:-]{1,253}")
"""What cannot be mistaken for another part of a URL."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach one coordinator, or a worker that donates.

    Attributes:
        name: Of whoever listens there.
        host: Address or host name that others reach it by.
        port: TCP port of its one server, 1 to 65535.
        certificate: PEM that its server proves itself with.
        key_id: Enrolled key that signs for it: receipts and commit records, or gradients.
    """

    name: str
    host: str
    port: int
    certificate: str
    key_id: str

    @property
    def address(self) -> str:
        """Its `host:port`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def to_bytes(self) -> bytes:
        """Write as JSON."""
        return json.dumps(self.to_fields(), sort_keys=True).encode()

    def to_fields(self) -> dict[str, str | int]:
        """Return the members of its JSON object."""
        return asdict(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Endpoint":
        """Read what `to_bytes` wrote.

        Raises:
            DamagedStateError: it is not an endpoint.
        """
        return cls.from_fields(_json_object(data))

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> "Endpoint":
        """Read what `to_fields` returned.

        Raises:
            DamagedStateError: it is not an endpoint.
        """
        text = {name: fields.get(name) for name in ("name", "host", "certificate", "key_id")}
        port = fields.get("port")
        if set(fields) != {*text, "port"} or not all(isinstance(v, str) for v in text.values()):
            raise DamagedStateError("an address has the wrong fields")
        if type(port) is not int or not 0 < port < 65536:
            raise DamagedStateError(f"an address has port {port!r}")
        if _HOST.fullmatch(str(fields["host"])) is None:
            raise DamagedStateError("an address has no host name or IP address")
        return cls(port=port, **{name: str(value) for name, value in text.items()})


def _json_object(data: bytes) -> dict[str, object]:
    if len(data) > ENDPOINT_BYTES_MAX:
        raise DamagedStateError(f"a coordinator's address of {len(data)} bytes is too long")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedStateError(f"a coordinator's address is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise DamagedStateError("a coordinator's address is not a JSON object")
    return fields
