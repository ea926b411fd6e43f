"""The address of a coordination store, and `connect`, which opens it.

`embedded:PATH` is a directory on this machine, `memory:NAME` a store that
lives as long as this process (`memory:` alone is a new one for each call).
"""

from dataclasses import dataclass
from pathlib import Path

from pliska.locks.backends.base import Backend
from pliska.locks.errors import LockUsageError

SCHEMES = ("embedded", "memory")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address.

    Attributes:
        scheme: One of `SCHEMES`.
        location: What follows the colon: a path or a name.
    """

    scheme: str
    location: str

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `scheme:location`.

        Raises:
            LockUsageError: The scheme is unknown, or a path is missing.
        """
        scheme, colon, location = text.partition(":")
        if not colon or scheme not in SCHEMES:
            raise LockUsageError(
                f"{text!r} is not the address of a store: write embedded:PATH or memory:NAME"
            )
        if "\0" in location:
            raise LockUsageError(f"{text!r} contains a NUL character")
        if scheme == "embedded" and not location:
            raise LockUsageError("embedded: needs a directory, for example embedded:./.pliska")
        return cls(scheme, location)

    @property
    def local_directory(self) -> Path | None:
        """The directory of an embedded store; None for any other."""
        return Path(self.location).expanduser() if self.scheme == "embedded" else None

    def __str__(self) -> str:
        return f"{self.scheme}:{self.location}"


def connect(address: str) -> Backend:
    """Open the store at `address`.

    Raises:
        LockUsageError: The address is malformed, or names a place no store can be in.
        StoreError: The store cannot be reached or read.
    """
    parsed = Address.parse(address)
    directory = parsed.local_directory
    if directory is None:
        from pliska.locks.backends.memory import MemoryBackend, MemoryStore

        return MemoryBackend(MemoryStore.named(parsed.location), str(parsed))
    from pliska.locks.backends.embedded import EmbeddedBackend

    return EmbeddedBackend(directory, str(parsed))
