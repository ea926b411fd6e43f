"""The address of a coordination store, and `connect`, which opens it.

`embedded:PATH` is a directory on this machine, `memory:NAME` a store that
lives as long as this process (`memory:` alone is a new one for each call),
`zookeeper://HOST:PORT,HOST:PORT/PATH` a ZooKeeper ensemble, and
`consul://HOST:PORT/PREFIX` a Consul agent (`consuls:` over TLS). Options of
the servers' addresses follow a question mark; their backends name them.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from pliska.locks.backends.base import Backend
from pliska.locks.errors import LockUsageError

SCHEMES = ("consul", "consuls", "embedded", "memory", "zookeeper")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address.

    Attributes:
        scheme: One of `SCHEMES`.
        location: What follows the colon: a path, a name, or //HOST and what follows it.
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
                f"{text!r} is not the address of a store: write embedded:PATH, memory:NAME, "
                "zookeeper://HOST:PORT/PATH or consul://HOST:PORT/PREFIX"
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
    match parsed.scheme:
        case "embedded":
            from pliska.locks.backends.embedded import EmbeddedBackend

            return EmbeddedBackend(Path(parsed.location).expanduser(), str(parsed))
        case "memory":
            from pliska.locks.backends.memory import MemoryBackend
            from pliska.locks.backends.memory_store import MemoryStore

            return MemoryBackend(MemoryStore.named(parsed.location), str(parsed))
        case "zookeeper":
            from pliska.locks.backends.zookeeper_feed import ZookeeperStore

            return ZookeeperStore(str(parsed))
        case _:
            from pliska.locks.backends.consul import ConsulBackend

            return ConsulBackend(str(parsed), os.environ)
