"""What makes the rounds of one leadership last: the ledger, checkpoints, and what undoes them.

Put together from the parts that write: `replication.ledger` makes a round durable and
commits it, `records.checkpoint_writer` keeps the whole state now and then, `pruning` removes
what that has made superfluous, and `rollback_control` restores older versions. Decides
nothing itself. `leading` makes it and ends it.
"""

import logging
from collections.abc import Callable

from pliska.coordinator.errors import CoordinatorError
from pliska.coordinator.inheritance import Inheritance
from pliska.coordinator.means import Means
from pliska.coordinator.pruning import Pruning
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.checkpoint_writer import CheckpointWriter
from pliska.coordinator.records.committer import Committer
from pliska.coordinator.replication.ledger import Copies, Ledger, due
from pliska.coordinator.replication.sources import Sources
from pliska.coordinator.rollback_control import RollbackControl
from pliska.coordinator.rounds.restoring import Restorable
from pliska.locks import Leadership, LockError

log = logging.getLogger(__name__)


class Durability:
    """The writing side of one leadership.

    Attributes:
        ledger: Makes each round durable and commits it.
        checkpoints: Takes the whole state when one is due.
        rollbacks: Carries out orders to go back.
    """

    def __init__(
        self,
        means: Means,
        leadership: Leadership,
        inherited: Inheritance,
        *,
        copies: Copies,
        sources: Sources | None,
        roll_back: Callable[[Restorable], None],
    ) -> None:
        """Go on with log and tip where the committed record left off.

        Args:
            means: The job, the store and the storage.
            leadership: Fences every write.
            inherited: What is committed.
            copies: The standbys that are sent each entry.
            sources: The other coordinators, for what this storage lacks.
            roll_back: Takes a version that is to be restored, on the event loop.
        """
        job, directory = means.job, means.directory
        archive = Archive(means.storage, job)
        self._leadership = leadership
        self.ledger = Ledger(
            archive.log,
            copies,
            Committer(directory, leadership, inherited.record, means.signer),
            inherited.head,
            due(job.durable.every, job.checkpoint.every, job.rounds.count),
        )
        self.rollbacks = RollbackControl(
            job,
            directory,
            leadership,
            means.storage,
            sources,
            lambda: self.ledger.committed,
            roll_back,
        )
        pruning = Pruning(
            archive=archive,
            directory=directory,
            leadership=leadership,
            ledger=self.ledger,
            copies=copies,
            rollbacks=self.rollbacks,
            spared=means.spared,
        )
        self.checkpoints = CheckpointWriter(archive.checkpoints, leadership.check, pruning.after)

    def finish(self) -> None:
        """Commit what a leader that still leads leaves behind, and end the writing threads."""
        try:
            if self._leadership.held:
                self.ledger.flush()
        except (LockError, CoordinatorError) as error:
            reason = f"the last rounds are lost: {error}"
            log.warning("epoch=%d reason=%s", self._leadership.epoch, reason)
        finally:
            self.ledger.close()
            self.checkpoints.close()
