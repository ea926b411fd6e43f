"""What a leader removes after a checkpoint: it moves the horizon, then clears its own storage.

The horizon is the job's and stands in the store, so that a standby and the next leader
know what nobody has any more; what is needed is `records.retention`'s matter, and what
is removed `records.pruner`'s. `leading` gives it to the writer of checkpoints.
"""

import logging
from collections.abc import Callable, Collection

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.horizon import raise_horizon
from pliska.coordinator.records.retention import horizon_of
from pliska.coordinator.replication.ledger import Copies, Ledger
from pliska.coordinator.rollback_control import RollbackControl
from pliska.locks import Leadership, LockError

log = logging.getLogger(__name__)


class Pruning:
    """The pruning of one job under one leadership."""

    def __init__(
        self,
        *,
        archive: Archive,
        directory: JobDirectory,
        leadership: Leadership,
        ledger: Ledger,
        copies: Copies,
        rollbacks: RollbackControl,
        spared: Callable[[], Collection[int]],
    ) -> None:
        """Prepare; nothing is removed before the first checkpoint.

        Args:
            archive: What is cleared.
            directory: Holds the horizon.
            leadership: Fences the horizon.
            ledger: Knows what is committed.
            copies: Know how far the standbys are.
            rollbacks: Know which older versions are still to be restored.
            spared: Versions of checkpoints that somebody is reading here.
        """
        self._archive = archive
        self._directory = directory
        self._leadership = leadership
        self._ledger = ledger
        self._copies = copies
        self._rollbacks = rollbacks
        self._spared = spared

    def after(self, _checkpoint: Checkpoint) -> None:
        """Move the horizon, and clear this storage up to it. Runs in the writer's thread."""
        pruner, rollbacks = self._archive.pruner, self._rollbacks
        try:
            with rollbacks.pruning:
                needed = rollbacks.needed  # read before the head, which then has what it lacks
                head = self._ledger.committed
                if head is None:
                    return
                wanted = horizon_of(
                    head.record.version,
                    pruner.versions(),
                    [*self._copies.followed(), *needed],
                    self._archive.retention,
                    head.record.undone,
                )
                reached = raise_horizon(self._directory, self._leadership, wanted)
        except (LockError, DamagedStateError) as error:
            log.warning("epoch=%d reason=%s", self._leadership.epoch, f"nothing is pruned: {error}")
        else:
            pruner.prune(head, reached, self._spared())
