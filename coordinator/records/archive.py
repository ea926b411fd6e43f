"""What one coordinator keeps of a job on its own storage: the log, the checkpoints, their pruning.

A leader and a standby keep the same things. How long they are kept is the
job's matter (`[checkpoint]`, `[durable]`, `[audit]`).
"""

from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.records.pruner import Pruner
from pliska.coordinator.records.retention import RetentionOptions
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire.job import Job


class Archive:
    """The archive of one job in one storage. Nothing is read when it is made.

    Attributes:
        log: Of the committed rounds.
        checkpoints: Of some of their states.
        pruner: Removes what is not needed any more.
        retention: What is needed.
    """

    def __init__(self, storage: Storage, job: Job) -> None:
        """Take the archive of `job` in `storage`."""
        self.log = UpdateLog(storage, job.name)
        self.checkpoints = CheckpointStore(storage, job.name)
        self.retention = RetentionOptions(
            keep=job.checkpoint.keep,
            keep_rounds=max(job.durable.keep_rounds, job.audit.keep_rounds),
        )
        self.pruner = Pruner(self.log, self.checkpoints, self.retention)
