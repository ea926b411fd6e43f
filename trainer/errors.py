"""What can go wrong inside a training process.

TrainerError
├── OptimizerUsageError     RobustOptimizer was called in the wrong order
├── UnknownWorkerError      the key is not enrolled, or not as a worker
├── WorkerRefusedError      the coordinator refuses this worker's messages for good
└── NoCoordinatorError      no coordinator leads the job within the time given
"""


class TrainerError(Exception):
    """Root of all errors of this package. `exit_code` is what a command ends with."""

    exit_code = 1


class OptimizerUsageError(TrainerError, RuntimeError):
    """`RobustOptimizer` was called in the wrong order. Call backward once a row, then step."""

    exit_code = 2


class UnknownWorkerError(TrainerError):
    """The key is not enrolled, or not as a worker. Enrol it with `pliska key enroll`."""

    exit_code = 7


class WorkerRefusedError(TrainerError):
    """The coordinator refuses this worker's messages and will go on doing so."""

    exit_code = 7


class NoCoordinatorError(TrainerError):
    """No coordinator leads the job within the time given. Start one, or look at its log."""

    exit_code = 8
