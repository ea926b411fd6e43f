"""A storage some of whose objects are packed: whoever reads and removes does not notice.

Beside an object `X` there may be `X.packed` instead. Packing writes that first and
removes `X` afterwards, unpacking the other way round, so that one of both is there
at every moment and after every crash, provided that one process at a time does so
(`packing` sees to it). Whoever opens a namespace puts it around each copy
of the storage.
"""

from collections.abc import Callable, Iterable

from pliska.coordinator.errors import MissingObjectError, ObjectTooLargeError, StorageError
from pliska.coordinator.registry.errors import IntegrityError
from pliska.coordinator.registry.packed import (
    HEADER_BYTES,
    packed_bytes_max,
    plain_length,
    unpack,
)
from pliska.coordinator.storage.mirrored_storage import MirroredStorage
from pliska.coordinator.storage.storage import Storage

SUFFIX = ".packed"

Remove = Callable[[Storage, str], object]
"""Removes an object from a storage, of the ones that others may take for theirs meanwhile."""


class PackedStorage:
    """See `storage.Storage` for what its methods promise."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __str__(self) -> str:
        return str(self._inner)

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Store the joined chunks under `name`, unpacked.

        What is packed beside it stays, unread, until it is packed again or removed: only
        who has announced it may remove anything.
        """
        self._inner.write(name, chunks)

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return the whole object, unpacked."""
        for _ in range(2):
            try:
                return self._inner.read(name, bytes_max)
            except MissingObjectError:
                content = self._unpacked(name, bytes_max)
            if content is not None:
                return content
        raise MissingObjectError(f"{name}: nothing is stored under this name")

    def read_range(self, name: str, offset: int, count: int) -> bytes:
        """Return a part of the object; of a packed one all is read for it."""
        try:
            return self._inner.read_range(name, offset, count)
        except MissingObjectError:
            return self.read(name, self.size(name) or 0)[offset : offset + count]

    def size(self, name: str) -> int | None:
        """Return the length of the object as it is read, or None where there is none."""
        size = self._inner.size(name)
        if size is not None:
            return size
        try:
            return plain_length(self._inner.read_range(name + SUFFIX, 0, HEADER_BYTES), name)
        except MissingObjectError:
            return self._inner.size(name)  # unpacked at this moment, or nowhere
        except (IntegrityError, StorageError):
            return self._inner.size(name + SUFFIX)  # damaged: whoever asks sees a wrong length

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with `prefix`, packed or not, sorted."""
        return sorted({name.removesuffix(SUFFIX) for name in self._inner.names(prefix)})

    def delete(self, name: str) -> bool:
        """Remove the object, packed or not; False where there was none."""
        was_packed = self._inner.delete(name + SUFFIX)
        return self._inner.delete(name) or was_packed

    def move(self, name: str, target: str) -> bool:
        """Give the object another name, packed or not."""
        was_packed = self._inner.move(name + SUFFIX, target + SUFFIX)
        return self._inner.move(name, target) or was_packed

    def put_packed(self, name: str, packed: bytes, remove: Remove) -> None:
        """Put packed bytes in the place of an object."""
        self._inner.write(name + SUFFIX, (packed,))
        remove(self._inner, name)

    def put_unpacked(self, name: str, content: bytes, remove: Remove) -> None:
        """Put an object in the place of its packed bytes."""
        self._inner.write(name, (content,))
        remove(self._inner, name + SUFFIX)

    def has_packed(self, name: str) -> bool:
        """Whether packed bytes are there, alone or left beside the object."""
        return self._inner.size(name + SUFFIX) is not None

    def is_packed(self, name: str) -> bool:
        """Whether an object is there in packed form alone."""
        return self._inner.size(name) is None and self._inner.size(name + SUFFIX) is not None

    def _unpacked(self, name: str, bytes_max: int) -> bytes | None:
        try:
            packed = self._inner.read(name + SUFFIX, packed_bytes_max(bytes_max))
        except MissingObjectError:
            return None
        except ObjectTooLargeError as error:
            raise ObjectTooLargeError(f"{name}: {error}") from error
        return unpack(packed, bytes_max, name)


def packable(storage: Storage) -> Storage:
    """Return the storage with objects that may be packed, in each copy that it keeps."""
    if isinstance(storage, MirroredStorage):
        return MirroredStorage([PackedStorage(copy) for copy in storage.copies])
    return PackedStorage(storage)
