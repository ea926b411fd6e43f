"""What can go wrong in the model registry.

RegistryError
├── RegistryUsageError     the caller's mistake: a bad name, reference or option
├── NotFoundError          no such model, version, alias or file
├── RegistryConflictError  somebody else changed it first; nothing was changed here
│   ├── AliasMovedError    the alias is not where the caller expected it
│   └── OperationOpenError another operation on the alias is open
├── IntegrityError         stored bytes that are not what their digest, chain or signature says
│   └── TensorFormatError  a file that is not a well-formed safetensors file
├── RefusedError           the policy does not allow it; the message says which rule
├── AbortedError           an operation was called off: the alias was not moved
├── DegradedError          the alias was moved, and too few nodes serve it
├── DeadlinePassedError    what was waited for did not come in time
├── DestinationError       what a version is published to is unreachable, or failed
├── NotServingError        a serving process has no model that it may serve now
└── MoveUnknownError       the answer was lost: the alias may or may not have moved

An unreachable store is an error of `pliska.locks` or of the storage (exit code 8).
"""


class RegistryError(Exception):
    """Root of all errors of this package. `exit_code` is what a command ends with."""

    exit_code = 1


class RegistryUsageError(RegistryError, ValueError):
    """The caller's mistake: a bad name, reference or option."""

    exit_code = 2


class NotFoundError(RegistryError):
    """There is no such model, version, alias or file."""

    exit_code = 3


class RegistryConflictError(RegistryError):
    """Somebody else changed it first; nothing was changed here. Read and decide again."""

    exit_code = 4


class AliasMovedError(RegistryConflictError):
    """The alias is not where the caller expected it.

    Attributes:
        gen: The generation that the alias has now; 0 where there is no alias.
    """

    def __init__(self, message: str, gen: int) -> None:
        super().__init__(message)
        self.gen = gen


class OperationOpenError(RegistryConflictError):
    """Another operation on the alias is open. Wait for it, or abort it.

    Attributes:
        op_id: That operation.
    """

    def __init__(self, message: str, op_id: str) -> None:
        super().__init__(message)
        self.op_id = op_id


class IntegrityError(RegistryError):
    """Stored bytes are not what their digest, chain, signature or format says. Do not use them."""

    exit_code = 5


class TensorFormatError(IntegrityError):
    """The file is not a well-formed safetensors file; nothing of it was used."""


class RefusedError(RegistryError):
    """The policy does not allow it; the message names the rule."""

    exit_code = 7


class AbortedError(RegistryError):
    """An operation was called off: the alias was not moved by it, and never will be.

    Attributes:
        op_id: The operation.
        exit_code: 4 where another operation came in between, 6 where a deadline
            passed, 7 where nodes could not serve the target.
    """

    def __init__(self, message: str, op_id: str, exit_code: int) -> None:
        super().__init__(message)
        self.op_id = op_id
        self.exit_code = exit_code


class DegradedError(RegistryError):
    """The alias was moved, and fewer nodes serve it than were asked for."""

    exit_code = 6


class DeadlinePassedError(RegistryError):
    """What was waited for did not come in time; nothing was changed by waiting."""

    exit_code = 6


class DestinationError(RegistryError):
    """What a version is published to, or read from, is unreachable or failed; try again."""

    exit_code = 8


class NotServingError(RegistryError):
    """A serving process has no model that it may serve now; the message says why."""

    exit_code = 7


class MoveUnknownError(RegistryError):
    """The store's answer was lost and it cannot be asked what happened.

    Attributes:
        op_id: Repeat the same command with this operation id: it reports the
            move where it was made, and makes it where it was not.
    """

    exit_code = 9

    def __init__(self, message: str, op_id: str) -> None:
        super().__init__(message)
        self.op_id = op_id
