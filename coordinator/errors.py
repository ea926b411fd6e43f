"""What can go wrong in the coordinator, outside its wire and its registry.

CoordinatorError
├── StorageError               the disk or the object store failed
│   ├── MissingObjectError     nothing is stored under that name
│   ├── StorageFullError       no space left: nothing was stored under the name
│   ├── ObjectTooLargeError    more bytes than the reader is willing to take
│   └── LinkedObjectError      a symbolic link lies where an object or its folder should
├── StorageUsageError          the caller's mistake: a bad address, name or prefix
├── DamagedStateError          bytes that are not what their digest, signature or format says
│   └── ForkedChainError       a record that does not follow the one before it
├── AuditUsageError            the caller's mistake: keys or files that an audit cannot use
├── NotKeptError               what an audit asks for was not kept, or not any more
├── CheckpointError            the background writer of checkpoints failed
├── RecoveryError              the committed state cannot be rebuilt from what is stored
├── NotReplicatedError         too few standbys have a round that was to be committed
├── OptimizerError             no such optimizer, or it does not take that parameter
├── ModelStateError            a state or vector that does not fit the model
├── UnknownJobError            no coordinator has started this job here
├── JobConflictError           another job of this name was started before
├── ModePendingError           no round has run in the mode that was asked for, in the time given
├── RollbackConflictError      another rollback of this job is under way
├── RollbackRefusedError       the job cannot be rolled back to that version
├── RollbackPendingError       a rollback was ordered, and not carried out in the time given
├── NotLedError                nobody leads the job at the moment
├── FileLimitError             the system lets a coordinator open too few files for its workers
└── ProtocolError              a coordinator's answer is not what the protocol says
"""


class CoordinatorError(Exception):
    """Root of all errors of this package. `exit_code` is what a command ends with."""

    exit_code = 1


class StorageError(CoordinatorError):
    """The disk or the object store failed. The message names the object and the cause."""

    exit_code = 8


class MissingObjectError(StorageError):
    """Nothing is stored under that name."""

    exit_code = 3


class StorageFullError(StorageError):
    """No space left (or over quota). Nothing was stored under the name; make room and try again."""


class ObjectTooLargeError(StorageError):
    """The stored object is larger than the reader is willing to take; nothing was read."""

    exit_code = 5


class LinkedObjectError(StorageError):
    """A symbolic link lies where an object or its folder should; it was not followed."""

    exit_code = 5


class StorageUsageError(CoordinatorError, ValueError):
    """The caller's mistake: a bad storage address, object name or prefix."""

    exit_code = 2


class DamagedStateError(CoordinatorError):
    """Stored bytes that are not what their digest, signature or format says. Do not use them."""

    exit_code = 5


class ForkedChainError(DamagedStateError):
    """A commit record that does not follow the one before it: it was never committed here."""


class AuditUsageError(CoordinatorError, ValueError):
    """The caller's mistake: keys or files that an audit cannot use."""

    exit_code = 2


class NotKeptError(CoordinatorError):
    """What an audit asks for was not kept, or not any more. The job file says for how long."""

    exit_code = 3


class CheckpointError(CoordinatorError):
    """The background writer of checkpoints failed; the cause is chained and in the message."""

    exit_code = 8


class RecoveryError(CoordinatorError):
    """The committed state cannot be rebuilt from what is stored. The message lists what is missing.

    A coordinator that gets this must not lead: fetch what is missing from
    another replica and recover again.
    """

    exit_code = 5


class NotReplicatedError(CoordinatorError):
    """Too few standbys have a round, and the leader ends. The round is not committed."""

    exit_code = 8


class OptimizerError(CoordinatorError, ValueError):
    """No such optimizer, or it does not take that parameter or value.

    Attributes:
        message: What is wrong.
        advice: What to write instead.
        parameter: The parameter at fault; None where it is the optimizer's name.
    """

    exit_code = 2

    def __init__(self, message: str, advice: str, parameter: str | None) -> None:
        super().__init__(f"{message}; {advice}")
        self.message = message
        self.advice = advice
        self.parameter = parameter


class ModelStateError(CoordinatorError, ValueError):
    """A state, vector or layout that does not fit the model it was given to."""

    exit_code = 5


class UnknownJobError(CoordinatorError):
    """No coordinator has started this job on this store."""

    exit_code = 3


class JobConflictError(CoordinatorError):
    """A different job of this name was started before. Use another name or another store."""

    exit_code = 4


class ModePendingError(CoordinatorError):
    """No round has run in the mode that was asked for, in the time given. It is asked for still."""

    exit_code = 6


class RollbackConflictError(CoordinatorError):
    """Another rollback of this job is under way. Nothing was ordered."""

    exit_code = 4


class RollbackRefusedError(CoordinatorError):
    """The job cannot be rolled back to that version; the message says why. Name another one."""

    exit_code = 7


class RollbackPendingError(CoordinatorError):
    """A rollback was ordered and not carried out in the time given. It is ordered still."""

    exit_code = 6


class NotLedError(CoordinatorError):
    """Nobody leads the job at the moment. Start a coordinator, or wait for a standby."""

    exit_code = 8


class FileLimitError(CoordinatorError):
    """The system lets this process open too few files for the job's workers. Raise the limit."""


class ProtocolError(CoordinatorError):
    """A coordinator's answer is not what the protocol says: damaged, or of another version."""

    exit_code = 5
