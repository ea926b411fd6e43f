"""Several storages that hold the same objects, such as one in another region.

A write is done when every one of them has it, so that losing any of them loses
nothing. The first one is read; the others only where it has nothing, or fails.
Objects carry their digest in their name or in what names them, so whoever reads
notices damage; `pliska model register` of the same content repairs it.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pliska.coordinator.errors import MissingObjectError, ObjectTooLargeError, StorageError
from pliska.coordinator.storage.storage import Storage

ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


class MirroredStorage:
    """See `storage.Storage` for what each method promises."""

    def __init__(self, copies: Sequence[Storage]) -> None:
        """Keep the same in all of `copies`, the preferred one first."""
        self.copies = tuple(copies)

    def __str__(self) -> str:
        return ",".join(map(str, self.copies))

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Store the joined chunks in every copy, one after the other.

        Raises:
            StorageError: A copy failed. Those before it have the object, so that
                writing it again completes the rest.
        """
        first, *others = self.copies
        first.write(name, chunks)
        for other in others:
            # From the first copy: the chunks may come only once, and large objects stay on disk.
            size = first.size(name) or 0
            other.write(name, (first.read(name, size),))

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the whole object."""
        return self._from_any(lambda copy: copy.read(name, bytes_max))

    def read_range(self, name: str, offset: int, count: int) -> bytes:
        """Return exactly the `count` bytes from `offset` on."""
        return self._from_any(lambda copy: copy.read_range(name, offset, count))

    def size(self, name: str) -> int | None:
        """Return the length of the object; None where not every copy has it."""
        sizes = {copy.size(name) for copy in self.copies}
        return sizes.pop() if len(sizes) == 1 else None

    def names(self, prefix: str) -> list[str]:
        """Return the names in any copy that begin with `prefix`, sorted."""
        return sorted({name for copy in self.copies for name in copy.names(prefix)})

    def delete(self, name: str) -> bool:
        """Remove the object from every copy; False where none had it."""
        were_there = [copy.delete(name) for copy in self.copies]
        return any(were_there)

    def move(self, name: str, target: str) -> bool:
        """Give the object another name in every copy that has it; False where none had it."""
        were_moved = [copy.move(name, target) for copy in self.copies]
        return any(were_moved)

    def _from_any(self, read: Callable[[Storage], ResultT]) -> ResultT:
        failures: list[StorageError] = []
        for copy in self.copies:
            try:
                return read(copy)
            except ObjectTooLargeError:
                raise
            except StorageError as error:
                if not isinstance(error, MissingObjectError):
                    _log.warning("reason=%s", f"a copy cannot be read, trying the next: {error}")
                failures.append(error)
        real = [each for each in failures if not isinstance(each, MissingObjectError)]
        raise (real or failures)[0]
