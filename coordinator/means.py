"""What a coordinator works with, whether it leads or stands by.

`daemon` opens it once and closes it at the end; `duty` passes it to each leadership.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.wire import Signer
from pliska.coordinator.wire.job import Job


@dataclass(frozen=True, slots=True)
class Means:
    """The job, the store, the storage, the key and the clock of one coordinator.

    Attributes:
        worker_lease_s: A worker that is silent for so long is gone.
        now: Seconds on a monotonic clock.
        spared: Versions of checkpoints that somebody is reading here.
    """

    job: Job
    directory: JobDirectory
    storage: Storage
    signer: Signer
    evaluator: Evaluator
    worker_lease_s: float
    now: Callable[[], float]
    spared: Callable[[], Collection[int]] = tuple
