"""Where a coordinator listens, as it is written into its record of the election.

The store is the root of trust for the address: the record carries the
coordinator's own certificate, and whoever connects accepts that one only.
"""

import json
from dataclasses import asdict, dataclass

from pliska.coordinator.errors import DamagedStateError

ENDPOINT_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach one coordinator.

    Attributes:
        name: Of the coordinator.
        host: Address or host name that others reach it by.
        port: TCP port of its one server, 1 to 65535.
        certificate: PEM that its server proves itself with.
        key_id: Enrolled key that signs its receipts and commit records.
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
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Endpoint":
        """Read what `to_bytes` wrote.

        Raises:
            DamagedStateError: it is not an endpoint.
        """
        fields = _json_object(data)
        text = {name: fields.get(name) for name in ("name", "host", "certificate", "key_id")}
        port = fields.get("port")
        if set(fields) != {*text, "port"} or not all(isinstance(v, str) for v in text.values()):
            raise DamagedStateError("the record of a coordinator's address has the wrong fields")
        if type(port) is not int or not 0 < port < 65536:
            raise DamagedStateError(f"a coordinator's address has port {port!r}")
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
