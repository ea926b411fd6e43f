"""What a leader's standbys may still need: its newest entries, and the names of older ones.

The newest are kept in memory, since all standbys take them at once; older ones are read
from the leader's log by their digest. On one event loop, but for the reading.
"""

import asyncio
import contextlib
from collections import OrderedDict

from pliska.coordinator.errors import MissingObjectError
from pliska.coordinator.records.commit import GENESIS, Commit
from pliska.coordinator.records.log_entry import LogEntry
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.donor_client import DonorRefusedError

RECENT_MAX = 4
"""Entries that are kept in memory; older ones are read from the log."""
KNOWN_MAX = 10_000
"""Versions whose digests are known; a standby further behind fetches by itself."""
READ_AGAIN_S = 0.1
"""Pause before an entry whose writing may not have ended is looked for again."""
READS_MAX = 10
"""An entry that is not there then was pruned, or is of a time before this storage."""


class Backlog:
    """The entries of one leadership, from the newest back.

    Attributes:
        newest: Version of the newest entry.
    """

    def __init__(self, update_log: UpdateLog) -> None:
        """Begin before the first round; `update_log` has the older entries."""
        self.newest = 0
        self._log = update_log
        self._known: OrderedDict[int, bytes] = OrderedDict({0: GENESIS})
        self._recent: OrderedDict[int, LogEntry] = OrderedDict()
        self._growth = asyncio.Event()

    def know(self, commit: Commit) -> None:
        """Take the digest of a commit whose entry is in the log."""
        self.newest = commit.record.version
        self._known[self.newest] = commit.digest
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def add(self, entry: LogEntry) -> None:
        """Take the next entry; whoever waits for it gets it."""
        self.know(entry.commit)
        self._recent[self.newest] = entry
        while len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        self._growth.set()
        self._growth = asyncio.Event()

    def has(self, version: int, digest: bytes) -> bool:
        """Whether this version of a standby is on the chain of this leadership."""
        return self._known.get(version) == digest

    async def after(self, version: int) -> LogEntry:
        """Wait for the entry that follows a version; read it from the log if it is older.

        Raises:
            DonorRefusedError: It is so old that nobody here knows its digest.
            MissingObjectError: It is not in the log; whoever needs it fetches a checkpoint.
            CoordinatorError: It cannot be read.
        """
        while version >= self.newest:
            await self._growth.wait()
        following = version + 1
        for _ in range(READS_MAX):
            entry = self._recent.get(following)
            if entry is not None:
                return entry
            digest = self._known.get(following)
            if digest is None:
                raise DonorRefusedError(f"fell behind version {following}")
            with contextlib.suppress(MissingObjectError):
                return await asyncio.to_thread(self._log.read, following, digest)
            await asyncio.sleep(READ_AGAIN_S)
        raise MissingObjectError(f"the leader's log has no entry of version {following} any more")
