"""Clears one coordinator's storage of checkpoints and aggregates that nobody needs any more.

What may go is decided by `retention` from the horizon in the store; records and
their annexes stay for ever. Entries that were never committed go too. Called in
the writer's thread after each checkpoint. A crash at any point leaves what
recovery needs, and the rest is done the next time.
"""

import logging
from collections.abc import Collection

from pliska.coordinator.errors import DamagedStateError, MissingObjectError
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.retention import RetentionOptions, kept
from pliska.coordinator.records.update_log import UpdateLog

log = logging.getLogger(__name__)


class Pruner:
    """Prunes the log and the checkpoints of one job in one storage. Not for two threads at once."""

    def __init__(
        self, log: UpdateLog, checkpoints: CheckpointStore, options: RetentionOptions
    ) -> None:
        """Prune what lies in one storage; nothing is read yet."""
        self._log = log
        self._checkpoints = checkpoints
        self._options = options
        self._known: dict[int, bytes] = {}

    def versions(self) -> list[int]:
        """Return the versions of the whole checkpoints."""
        return [folder.version for folder in self._checkpoints.folders() if folder.is_whole]

    def prune(self, head: Commit, horizon: int, spared: Collection[int] = ()) -> None:
        """Remove what nobody needs.

        Args:
            head: The last committed record; its chain says which entries are real.
            horizon: From the store.
            spared: Versions of checkpoints that somebody fetches, to go on from there.

        Raises:
            StorageError: The disk failed; what was not removed is tried again next time.
        """
        # One look decides, and only what it saw goes: whatever others store while this process is
        # paused between the two stays.
        folders = self._checkpoints.folders()
        whole = [folder.version for folder in folders if folder.is_whole]
        stays = kept(horizon, whole, self._options, head.record.undone)
        last = min((stays.aggregates_after, *spared))
        wanted = stays.checkpoints | frozenset(spared)
        for folder in folders:
            # One that is not whole may be in the making, unless it would go then too.
            if folder.version < last or (folder.is_whole and folder.version not in wanted):
                self._checkpoints.remove(folder)
        old = [each for each in self._log.entries() if each.version <= last]
        if not old:
            return
        self._known = self._chain(head, old[0].version)
        for entry in old:
            digest = self._known.get(entry.version)
            if digest is None:
                continue  # nothing in this storage tells what became of it
            if not entry.holds(entry.version, digest):
                self._log.discard(entry)
                continue
            try:
                self._log.shrink(entry.version, digest)
            except (DamagedStateError, MissingObjectError) as error:
                log.warning("version=%d reason=%s", entry.version, f"not pruned: {error}")

    def _chain(self, head: Commit, oldest: int) -> dict[int, bytes]:
        """Return the digests of the committed records from `oldest` on, as far as they are here."""
        version, digest = head.record.version, head.digest
        found = {version: digest}
        while version > oldest:
            if self._known.get(version) == digest:
                known = self._known.items()
                return found | {older: each for older, each in known if oldest <= older < version}
            try:
                record = self._log.head(version, digest).commit.record
            except (MissingObjectError, DamagedStateError) as error:
                log.warning("version=%d reason=%s", version, f"the chain ends here: {error}")
                break
            version, digest = version - 1, record.previous
            found[version] = digest
        return found
