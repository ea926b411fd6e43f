"""A resource that a donor gives in parts: leaves of a hash tree, and the payload behind them.

Whoever fetches it knows the root and checks each chunk, see `wire.download`. The
payload never changes while it is read: it is a checkpoint, a log entry, or a
copy of parameters that nobody steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pliska.coordinator.wire import hash_tree

RANGE_BYTES_MAX = 32 * 2**20
"""The largest part that is given at once."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """One resource.

    Attributes:
        leaves: Joined.
        payload_len: Bytes of the payload.
        read_payload: Takes offset and count, returns that part of the payload. May
            block on the disk.
    """

    leaves: bytes
    payload_len: int
    read_payload: Callable[[int, int], bytes | memoryview]

    @classmethod
    def of_bytes(cls, payload: bytes | memoryview) -> "Sealed":
        """Hash a payload that lies in memory."""
        view = memoryview(payload)
        leaves = b"".join(hash_tree.leaves(view))
        return cls(leaves, len(view), lambda offset, count: view[offset : offset + count])

    @property
    def length(self) -> int:
        """Bytes of leaves and payload."""
        return len(self.leaves) + self.payload_len

    def read(self, offset: int, count: int) -> bytes | memoryview:
        """Return a part of leaves and payload, cut at their end. May block on the disk.

        Raises:
            StorageError: What holds the payload is gone, or failed.
        """
        end = min(offset + count, self.length)
        before = len(self.leaves)
        if offset >= before:
            return self.read_payload(offset - before, end - offset)
        if end <= before:
            return self.leaves[offset:end]
        return self.leaves[offset:] + bytes(self.read_payload(0, end - before))
