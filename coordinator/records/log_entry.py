"""One entry of the update log: a committed round's record, its annex and its aggregate, in bytes.

The signed record and its annex, each with its length before it (4 bytes,
big-endian), then the aggregate as little-endian float32. Disks hold it and
standbys receive it in the same form. It proves itself: the record's digest is
known from elsewhere, and the record names the digests of the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.annex import ANNEX_BYTES_MAX, Annex
from pliska.coordinator.records.commit import RECORD_BYTES_MAX, Commit
from pliska.coordinator.training.training_state import tensor_bytes, vector_digest
from pliska.coordinator.wire.limits import PAYLOAD_BYTES_MAX

LENGTH_BYTES = 4
HEAD_BYTES_MAX = 2 * LENGTH_BYTES + RECORD_BYTES_MAX + ANNEX_BYTES_MAX
"""Largest record with its annex that is read."""
ENTRY_BYTES_MAX = HEAD_BYTES_MAX + PAYLOAD_BYTES_MAX
"""Largest entry that is read."""


@dataclass(frozen=True, slots=True)
class LogHead:
    """An entry without its aggregate: what remains of a round for ever.

    Attributes:
        commit: The signed record.
        annex: Headers of the round and standings after it; the one that the record names.
    """

    commit: Commit
    annex: Annex

    def to_bytes(self) -> bytes:
        """Return the bytes of the entry in front of the aggregate."""
        parts = (self.commit.to_bytes(), self.annex.to_bytes())
        return b"".join(len(part).to_bytes(LENGTH_BYTES) + part for part in parts)

    @classmethod
    def from_bytes(cls, content: bytes | memoryview, digest: bytes) -> "LogHead":
        """Read the head whose record has this digest.

        Raises:
            DamagedStateError: It is cut short, altered, or holds another record.
        """
        head, rest = _split(memoryview(content), digest)
        if rest:
            raise DamagedStateError(f"it has {len(rest)} bytes too many")
        return head


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One whole entry.

    Attributes:
        commit: The signed record.
        aggregate: float32 [d], the one that the record names.
        annex: Headers of the round and standings after it; the one that the record names.
    """

    commit: Commit
    aggregate: torch.Tensor
    annex: Annex

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes; those of the aggregate are its own memory."""
        yield LogHead(self.commit, self.annex).to_bytes()
        yield tensor_bytes(self.aggregate)

    @classmethod
    def from_bytes(cls, content: bytes | memoryview, digest: bytes) -> "LogEntry":
        """Read the entry whose record has this digest, and check all of it.

        Raises:
            DamagedStateError: It is cut short, altered, or holds another record.
        """
        head, rest = _split(memoryview(content), digest)
        if not rest or len(rest) % 4:
            raise DamagedStateError("it is cut short or damaged")
        return cls.joined(head, torch.frombuffer(bytearray(rest), dtype=torch.float32))

    @classmethod
    def joined(cls, head: LogHead, aggregate: torch.Tensor) -> "LogEntry":
        """Put an aggregate to its head.

        Args:
            head: Checked.
            aggregate: float32 [d].

        Raises:
            DamagedStateError: It is not the aggregate that the record names.
        """
        if vector_digest(aggregate) != head.commit.record.aggregate_digest:
            raise DamagedStateError("its aggregate is not the one that its record names")
        return cls(head.commit, aggregate, head.annex)


def _split(content: memoryview, digest: bytes) -> tuple[LogHead, memoryview]:
    """Read the head of an entry; return it and what follows."""
    signed, content = first_part(content, RECORD_BYTES_MAX)
    annex, content = first_part(content, ANNEX_BYTES_MAX)
    try:
        commit = Commit.expected(bytes(signed), digest)
    except DamagedStateError as error:
        raise DamagedStateError(f"it holds {error}") from error
    return LogHead(commit, Annex.from_bytes(annex, commit.record.annex_digest)), content


def first_part(content: memoryview, bytes_max: int) -> tuple[memoryview, memoryview]:
    """Cut off the part that a length announces.

    Raises:
        DamagedStateError: It is longer than `bytes_max` or than the content.
    """
    length = int.from_bytes(content[:LENGTH_BYTES])
    if length > bytes_max or LENGTH_BYTES + length > len(content):
        raise DamagedStateError("it is cut short or damaged")
    return content[LENGTH_BYTES : LENGTH_BYTES + length], content[LENGTH_BYTES + length :]
