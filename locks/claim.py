"""What a contender's record says: how much it wants, whether it is inside, and who it is.

The bytes come from the store and may be anybody's: what cannot be read counts
as the wish to be alone, so that it is waited for and never overlooked.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass

OWNER_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """The value of a contender's record.

    Attributes:
        owner: Whoever made it, for people to read.
        is_shared: Whether it goes together with other shared claims.
        is_inside: For semaphores: whether it holds a lease, which it then
            keeps whatever comes.
    """

    owner: str
    is_shared: bool = False
    is_inside: bool = False

    def to_bytes(self) -> bytes:
        """The record's value."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "Claim":
        """Read a record's value, whoever wrote it."""
        try:
            fields = json.loads(value)
        except (ValueError, RecursionError):
            return cls("")
        if not isinstance(fields, dict):
            return cls("")
        owner = fields.get("owner")
        return cls(
            owner[:OWNER_CHARACTERS_MAX] if isinstance(owner, str) else "",
            fields.get("is_shared") is True,
            fields.get("is_inside") is True,
        )


def this_process() -> str:
    """This process under the name that lists of contenders show."""
    return f"{socket.gethostname()} pid {os.getpid()}"[:OWNER_CHARACTERS_MAX]
