"""The update log: what each committed round did, on disk before its commit.

An entry is `jobs/JOB/log/VERSION-DIGEST.entry`, named by its record's digest,
so entries that different leaders wrote for one version never collide: only the
one that the commit record in the store names counts. Whether it does is for
`recovery` to say. Entry: the signed record and its annex, each with its length
before it (4 bytes, big-endian), then the aggregate as little-endian float32.
Nothing is ever removed: the log is also what a later audit recomputes.
"""

from dataclasses import dataclass

import torch

from pliska.coordinator.annex import ANNEX_BYTES_MAX, NO_ANNEX, Annex
from pliska.coordinator.commit import RECORD_BYTES_MAX, Commit
from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.storage import Storage
from pliska.coordinator.training_state import tensor_bytes, vector_digest
from pliska.coordinator.wire.limits import PAYLOAD_BYTES_MAX

ENTRY_BYTES_MAX = 4 + RECORD_BYTES_MAX + 4 + ANNEX_BYTES_MAX + PAYLOAD_BYTES_MAX
"""Largest entry that is read."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry, checked: annex and aggregate are those that the record names.

    Attributes:
        commit: The signed record.
        aggregate: float32 [d].
        annex: Headers of the round and standings after it.
    """

    commit: Commit
    aggregate: torch.Tensor
    annex: Annex


class UpdateLog:
    """The log of one job. Blocks on the disk; no thread of its own."""

    def __init__(self, storage: Storage, job: str) -> None:
        """Take the log of `job` in `storage`; nothing is read yet."""
        self._storage = storage
        self._folder = f"jobs/{job}/log/"

    def write(self, commit: Commit, aggregate: torch.Tensor, annex: Annex = NO_ANNEX) -> None:
        """Store an entry; on return it is durable and the record may be committed.

        Args:
            commit: What is about to be committed.
            aggregate: float32 [d] on the CPU, the one that the record names.
            annex: The one that the record names.

        Raises:
            StorageError: The disk failed or is full; do not commit.
        """
        head = b"".join(_with_length(part) for part in (commit.to_bytes(), annex.to_bytes()))
        name = self.name(commit.record.version, commit.digest)
        self._storage.write(name, [head, tensor_bytes(aggregate)])

    def read(self, version: int, digest: bytes) -> LogEntry:
        """Read the entry of a committed record and check all of it.

        Args:
            version: The version that it made.
            digest: Digest of its record, from the record after it or from the store.

        Raises:
            MissingObjectError: There is no such entry.
            DamagedStateError: It is cut short, altered, or holds another record.
            StorageError: The disk failed.
        """
        name = self.name(version, digest)
        content = memoryview(self._storage.read(name, ENTRY_BYTES_MAX))
        try:
            return _parsed(content, digest)
        except DamagedStateError as error:
            raise DamagedStateError(f"{name}: {error}") from error

    def name(self, version: int, digest: bytes) -> str:
        """Return the object name of the entry of this version and record digest."""
        return f"{self._folder}{version:012d}-{digest.hex()[:16]}.entry"


def _with_length(part: bytes) -> bytes:
    return len(part).to_bytes(4) + part


def _parsed(content: memoryview, digest: bytes) -> LogEntry:
    signed, content = _first_part(content, RECORD_BYTES_MAX)
    annex, content = _first_part(content, ANNEX_BYTES_MAX)
    if not content or len(content) % 4:
        raise DamagedStateError("it is cut short or damaged")
    try:
        commit = Commit.expected(bytes(signed), digest)
    except DamagedStateError as error:
        raise DamagedStateError(f"it holds {error}") from error
    aggregate = torch.frombuffer(bytearray(content), dtype=torch.float32)
    if vector_digest(aggregate) != commit.record.aggregate_digest:
        raise DamagedStateError("its aggregate is not the one that its record names")
    return LogEntry(commit, aggregate, Annex.from_bytes(annex, commit.record.annex_digest))


def _first_part(content: memoryview, bytes_max: int) -> tuple[memoryview, memoryview]:
    """Cut off the part that a length announces."""
    length = int.from_bytes(content[:4])
    if length > bytes_max or 4 + length > len(content):
        raise DamagedStateError("it is cut short or damaged")
    return content[4 : 4 + length], content[4 + length :]
