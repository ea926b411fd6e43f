"""Durable objects by name: checkpoints, log entries, registry blobs.

Every object is written whole or not at all and is immutable by convention (its
name carries its digest). This is not the coordination store: nothing here is
compared and set, and nobody is told of a change. Called by the update log, the
checkpoints and the registry.
"""

from collections.abc import Iterable
from typing import Protocol

from pliska.coordinator.storage.local_storage import LocalStorage

__all__ = ["LocalStorage", "Storage"]


class Storage(Protocol):
    """Objects by name, such as `jobs/digits/log/000000000012-0a1b2c3d4e5f6071.entry`.

    A name is parts of letters, digits, `.`, `_` and `-` joined by `/`; no part
    begins with a dot or a dash. Any other name is a `StorageUsageError`, so no
    name leaves the storage. Methods may be called from any thread.
    """

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Store the joined chunks under `name`, in place of what was there.

        On return the object is whole and survives a power cut. On an error the
        name holds what it held before, or (where only the last sync failed) the
        whole new object; never a part of one.

        Raises:
            StorageFullError: no space left.
            StorageError: the disk or store failed.
        """
        ...

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the whole object.

        Raises:
            MissingObjectError: nothing is stored under the name.
            ObjectTooLargeError: it is longer than `bytes_max`.
            StorageError: the disk or store failed.
        """
        ...

    def read_range(self, name: str, offset: int, count: int) -> bytes:
        """Return exactly the `count` bytes from `offset` on.

        Raises:
            MissingObjectError: nothing is stored under the name.
            StorageError: the object ends before them, or the disk or store failed.
        """
        ...

    def size(self, name: str) -> int | None:
        """Return the length of the object in bytes, or None where there is none."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with `prefix` (plain text, not a folder), sorted."""
        ...

    def delete(self, name: str) -> bool:
        """Remove the object durably; False where there was none."""
        ...

    def move(self, name: str, target: str) -> bool:
        """Give the object another name durably; it is under one of both at every moment.

        Returns:
            False where there was none, or where `target` has an object: then nothing changed.
        """
        ...
