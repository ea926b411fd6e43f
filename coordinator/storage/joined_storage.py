"""The storages of several coordinators, read as if they were one: what any of them has is there.

Not mirrors of each other: what a coordinator wrote for itself, such as gradients
for audits, lies in one of them only. For who looks at a job's files and changes none.
"""

from collections.abc import Iterable

from pliska.coordinator.errors import StorageUsageError
from pliska.coordinator.storage.mirrored_storage import MirroredStorage


class JoinedStorage(MirroredStorage):
    """See `storage.Storage` for what each method promises; nothing is ever written."""

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:  # noqa: ARG002
        """Refuse to.

        Raises:
            StorageUsageError: Always.
        """
        raise StorageUsageError(f"{name}: storages that are read together are not written to")

    def size(self, name: str) -> int | None:
        """Return the length of the object in bytes, or None where nobody has it."""
        sizes = (copy.size(name) for copy in self.copies)
        return next((size for size in sizes if size is not None), None)

    def delete(self, name: str) -> bool:
        """Refuse to.

        Raises:
            StorageUsageError: Always.
        """
        raise StorageUsageError(f"{name}: storages that are read together are not written to")

    def move(self, name: str, target: str) -> bool:  # noqa: ARG002
        """Refuse to.

        Raises:
            StorageUsageError: Always.
        """
        raise StorageUsageError(f"{name}: storages that are read together are not written to")
