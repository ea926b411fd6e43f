"""What can go wrong in `pliska.locks`.

LockError
├── StoreError                 the store's or the network's fault
│   ├── StoreUnavailableError  no answer in time, or no connection: nothing was applied
│   ├── AccessDeniedError      the store refuses our credential, or wants one
│   ├── OutcomeUnknownError    the answer was lost: the change may or may not have been applied
│   └── StoreFormatError       what the store holds is not ours, is damaged, or is too new
├── ConflictError              a check failed: somebody else changed the record first
├── SessionLostError           the session ended; all that it held is gone
│   └── GrantLostError         this lock or leadership is no longer ours
├── AcquireTimeoutError        the lock did not come free in the time given
├── AcquireCancelledError      the caller called off its wait
├── StaleTokenError            a write under a grant that a later one has overtaken
├── NotHeldError               release or check of something that is not held
├── LockFreeError              a lock that was to be broken is held by nobody
├── ForkedProcessError         a client of the parent process was used in a forked child
├── BrokenBarrierError         somebody who had arrived at the barrier did not stay
├── TransferFailedError        the named successor does not lead
└── LockUsageError             the caller's mistake: a bad address, name, value or lease
    └── UpgradeRefusedError    who reads asked to write: it would wait for itself
"""


class LockError(Exception):
    """Root of all errors of this package. `exit_code` is what a command ends with."""

    exit_code = 1


class StoreError(LockError):
    """The store, or the way to it, failed."""

    exit_code = 8


class StoreUnavailableError(StoreError):
    """No answer in time, or no connection. Nothing was applied; trying again is safe."""


class AccessDeniedError(StoreError):
    """The store refuses our credential for this, or wants one. The message names its source."""

    exit_code = 7


class OutcomeUnknownError(StoreError):
    """The answer to a change was lost. Read the record before trying again."""

    exit_code = 9


class StoreFormatError(StoreError):
    """What the store holds is not ours, is damaged, or was written by a newer version."""

    exit_code = 5


class ConflictError(LockError):
    """A check of a conditional change failed; nothing was applied. Read and decide again."""

    exit_code = 4


class SessionLostError(LockError):
    """The session has ended, and all that it held with it. Open a new one."""


class GrantLostError(SessionLostError):
    """This lock or leadership is no longer ours. Stop what it guarded; acquire anew."""


class AcquireTimeoutError(LockError):
    """The lock did not come free in the time given."""

    exit_code = 6


class AcquireCancelledError(LockError):
    """The wait for a lock or leadership was called off by whoever waited."""


class StaleTokenError(LockError):
    """A guarded write came from a holder that a later one has overtaken. Nothing was written."""

    exit_code = 4


class NotHeldError(LockError):
    """A release or check of something that this handle does not hold."""


class LockFreeError(LockError):
    """A lock that was to be taken away from its holder is held by nobody."""

    exit_code = 3


class ForkedProcessError(LockError):
    """A client made in the parent process was used in a forked child. Connect again there."""


class BrokenBarrierError(LockError):
    """Somebody who had arrived at the barrier did not stay. Enter again: a new generation."""

    exit_code = 4


class TransferFailedError(LockError):
    """The named successor does not lead; the message says who does."""

    exit_code = 4


class LockUsageError(LockError, ValueError):
    """The caller's mistake: a bad address, name, value or lease."""

    exit_code = 2


class UpgradeRefusedError(LockUsageError):
    """Who holds a lock for reading asked to write. Release it first: two who ask would deadlock."""
