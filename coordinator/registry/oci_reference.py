"""Names of artifacts in OCI registries: `HOST/NAME:TAG`, or `HOST/NAME@sha256:…`.

Only what the OCI distribution specification (1.1, "Pulling manifests") allows is
one, so a name can be put into a URL as it is.
"""

import re
from dataclasses import dataclass

from pliska.coordinator.registry.digest import Digest, is_digest
from pliska.coordinator.registry.errors import RegistryUsageError

REFERENCE_CHARACTERS_MAX = 512
NAME_CHARACTERS_MAX = 255
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

_REFERENCE = re.compile(
    r"(?P<host>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]{2,39}\])(?::(?P<port>[0-9]{1,5}))?"
    r"/(?P<name>[^:@]+)(?::(?P<tag>[^:@]+)|@(?P<digest>.+))"
)
_NAME = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class OciReference:
    """One artifact of one registry. Exactly one of the last two is set.

    Attributes:
        host: Name or address, without the port.
        port: 443 unless said otherwise; 80 for a registry on this machine.
        name: Of the repository there.
        tag: A name that can be moved.
        digest: Of the artifact's manifest.
    """

    host: str
    port: int
    name: str
    tag: str | None
    digest: Digest | None

    @classmethod
    def parse(cls, text: str) -> "OciReference":
        """Read `HOST[:PORT]/NAME:TAG` or `HOST[:PORT]/NAME@sha256:…`.

        Raises:
            RegistryUsageError: `text` is neither.
        """
        matched = _REFERENCE.fullmatch(text) if len(text) <= REFERENCE_CHARACTERS_MAX else None
        if (
            matched is None
            or ".." in matched["host"]
            or len(matched["name"]) > NAME_CHARACTERS_MAX
            or not _NAME.fullmatch(matched["name"])
            or not (_TAG.fullmatch(matched["tag"] or "") or is_digest(matched["digest"] or ""))
            or not 0 < int(matched["port"] or 1) < 2**16
        ):
            raise RegistryUsageError(
                f"{text[:80]!r} is not HOST/NAME:TAG or HOST/NAME@sha256:…, such as "
                "registry.example/models/digits:prod"
            )
        host = matched["host"]
        port = int(matched["port"] or (80 if host in LOOPBACK else 443))
        digest = None if matched["digest"] is None else Digest(matched["digest"])
        return cls(host, port, matched["name"], matched["tag"], digest)

    @property
    def is_local(self) -> bool:
        """Whether the registry is on this machine: only then is it spoken to without TLS."""
        return self.host in LOOPBACK

    @property
    def origin(self) -> str:
        """Where its HTTP API is."""
        return f"{'http' if self.is_local else 'https'}://{self.host}:{self.port}"

    def __str__(self) -> str:
        end = f":{self.tag}" if self.digest is None else f"@{self.digest}"
        return f"{self.host}:{self.port}/{self.name}{end}"
