"""The update log: what each committed round did, on disk before its commit.

An entry is `jobs/JOB/log/VERSION-DIGEST.entry`, named by its record's digest,
so entries that different leaders wrote for one version never collide: only the
one that the tip in the store names counts. Whether it does is for
`following` to say. When its aggregate is not needed any more (see `retention`),
an entry shrinks to its head, `jobs/JOB/records/THOUSANDS/VERSION-DIGEST.head`,
which stays: the chain of records has no gap, from the first round on.
"""

import re
from dataclasses import dataclass

import torch

from pliska.coordinator.errors import DamagedStateError, MissingObjectError
from pliska.coordinator.records.annex import ANNEX_BYTES_MAX, NO_ANNEX, Annex
from pliska.coordinator.records.commit import RECORD_BYTES_MAX, Commit
from pliska.coordinator.records.log_entry import (
    ENTRY_BYTES_MAX,
    HEAD_BYTES_MAX,
    LENGTH_BYTES,
    LogEntry,
    LogHead,
)
from pliska.coordinator.storage.storage import Storage

__all__ = ["LogEntry", "LogHead", "Logged", "UpdateLog"]

VERSIONS_PER_FOLDER = 1000
"""Heads that lie in one folder."""

_ENTRY = re.compile(r"(\d{12})-([0-9a-f]{16})\.entry")


@dataclass(frozen=True, slots=True)
class Logged:
    """The name of one entry, without its content.

    Attributes:
        mark: The first 8 bytes of its record's digest.
    """

    version: int
    mark: bytes

    def holds(self, version: int, digest: bytes) -> bool:
        """Whether it is the entry of this version and record digest."""
        return self.version == version and digest.startswith(self.mark)


class UpdateLog:
    """The log of one job. Blocks on the disk; no thread of its own."""

    def __init__(self, storage: Storage, job: str) -> None:
        """Take the log of `job` in `storage`; nothing is read yet."""
        self._storage = storage
        self._folder = f"jobs/{job}/log/"
        self._heads = f"jobs/{job}/records/"

    def write(self, commit: Commit, aggregate: torch.Tensor, annex: Annex = NO_ANNEX) -> None:
        """Store an entry; on return it is durable and the record may be committed.

        Args:
            commit: What is about to be committed.
            aggregate: float32 [d] on the CPU, the one that the record names.
            annex: The one that the record names.

        Raises:
            StorageError: The disk failed or is full; do not commit.
        """
        name = self.name(commit.record.version, commit.digest)
        self._storage.write(name, LogEntry(commit, aggregate, annex).pieces())

    def read(self, version: int, digest: bytes) -> LogEntry:
        """Read the entry of a committed record and check all of it.

        Args:
            version: The version that it made.
            digest: Digest of its record, from the record after it or from the store.

        Raises:
            MissingObjectError: There is no such entry, or it has shrunk.
            DamagedStateError: It is cut short, altered, or holds another record.
            StorageError: The disk failed.
        """
        name = self.name(version, digest)
        content = self._storage.read(name, ENTRY_BYTES_MAX)
        try:
            return LogEntry.from_bytes(content, digest)
        except DamagedStateError as error:
            raise DamagedStateError(f"{name}: {error}") from error

    def head(self, version: int, digest: bytes) -> LogHead:
        """Read record and annex of a committed record, whether its entry has shrunk or not.

        Raises:
            MissingObjectError, DamagedStateError, StorageError: As `read`.
        """
        try:
            name = self._head_name(version, digest)
            content = self._storage.read(name, HEAD_BYTES_MAX)
        except MissingObjectError:
            name = self.name(version, digest)
            content = self._storage.read_range(name, 0, self.aggregate_offset(version, digest))
        try:
            return LogHead.from_bytes(content, digest)
        except DamagedStateError as error:
            raise DamagedStateError(f"{name}: {error}") from error

    def write_head(self, head: LogHead) -> None:
        """Store record and annex of a round whose aggregate is elsewhere or gone.

        Raises:
            StorageError: The disk failed or is full.
        """
        record = head.commit.record
        self._storage.write(self._head_name(record.version, head.commit.digest), [head.to_bytes()])

    def has(self, version: int, digest: bytes) -> bool:
        """Whether the entry is there with its aggregate; its content is not checked."""
        return self._storage.size(self.name(version, digest)) is not None

    def aggregate_offset(self, version: int, digest: bytes) -> int:
        """Return where in the entry the aggregate begins.

        Raises:
            MissingObjectError, DamagedStateError, StorageError: As `read`.
        """
        name = self.name(version, digest)
        offset = 0
        for bytes_max in (RECORD_BYTES_MAX, ANNEX_BYTES_MAX):
            length = int.from_bytes(self._storage.read_range(name, offset, LENGTH_BYTES))
            if length > bytes_max:
                raise DamagedStateError(f"{name}: it is damaged")
            offset += LENGTH_BYTES + length
        return offset

    def aggregate_range(self, version: int, digest: bytes, offset: int, count: int) -> bytes:
        """Return a part of the aggregate's bytes, not checked.

        Raises:
            MissingObjectError, DamagedStateError, StorageError: As `read`.
        """
        start = self.aggregate_offset(version, digest)
        return self._storage.read_range(self.name(version, digest), start + offset, count)

    def entries(self) -> list[Logged]:
        """List the entries that have their aggregate, oldest version first."""
        names = (name.removeprefix(self._folder) for name in self._storage.names(self._folder))
        matches = filter(None, map(_ENTRY.fullmatch, names))
        return [Logged(int(found[1]), bytes.fromhex(found[2])) for found in matches]

    def shrink(self, version: int, digest: bytes) -> None:
        """Drop the aggregate of an entry; its head stays. A crash leaves both, or the head.

        Raises:
            MissingObjectError, DamagedStateError, StorageError: As `read`; nothing is dropped.
        """
        head = self.head(version, digest)
        self._storage.write(self._head_name(version, digest), [head.to_bytes()])
        self._storage.delete(self.name(version, digest))

    def discard(self, logged: Logged) -> None:
        """Remove an entry that was never committed."""
        self._storage.delete(f"{self._folder}{logged.version:012d}-{logged.mark.hex()}.entry")

    def names(self) -> list[str]:
        """Return the names of all entries and heads, whether they were committed or not."""
        return [*self._storage.names(self._heads), *self._storage.names(self._folder)]

    def claimed(self, name: str) -> Commit:
        """Read only the record of one of `names`, its signature not checked.

        Raises:
            DamagedStateError: There is no record in it, or not the one that it is named by.
            StorageError: The disk failed, or the entry is cut short.
        """
        length = int.from_bytes(self._storage.read_range(name, 0, LENGTH_BYTES))
        if length > RECORD_BYTES_MAX:
            raise DamagedStateError(f"{name}: it is damaged")
        try:
            commit = Commit.unverified(self._storage.read_range(name, LENGTH_BYTES, length))
        except DamagedStateError as error:
            raise DamagedStateError(f"{name}: {error}") from error
        version, digest = commit.record.version, commit.digest
        if name not in (self.name(version, digest), self._head_name(version, digest)):
            raise DamagedStateError(f"{name}: it holds another record than its name says")
        return commit

    def name(self, version: int, digest: bytes) -> str:
        """Return the object name of the entry of this version and record digest."""
        return f"{self._folder}{version:012d}-{digest.hex()[:16]}.entry"

    def _head_name(self, version: int, digest: bytes) -> str:
        folder = f"{version // VERSIONS_PER_FOLDER:09d}"
        return f"{self._heads}{folder}/{version:012d}-{digest.hex()[:16]}.head"
