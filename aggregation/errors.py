"""What can go wrong in `pliska.aggregation`.

A bad row is data, not an error: it becomes a `WorkerReport` with its reason.
These are raised only where no answer can be trusted, or the caller is wrong.

AggregationError
├── RuleUsageError             the caller's mistake in choosing or setting up a rule or attack
│   ├── UnknownNameError       no rule, pre-aggregator or attack has this name
│   ├── ParameterError         a parameter is unknown, missing or has an impossible value
│   ├── BoundError             n workers are too few for this rule and f
│   └── SearchLimitError       an exact search would take too long at this n and f
├── MassError                  f workers could hold half of the voting mass
├── TooManyBadRowsError        more than f rows were refused: the honest ones cannot be told apart
├── ShapeError                 the rows cannot be read as n vectors of one length
│   └── LayoutMismatchError    a state dict lacks, adds or reshapes an entry
├── WorkerNameError            worker ids are missing, repeated or too many
├── BufferFullError            every row of a GradientBuffer is claimed
└── TensorFileError            a file of tensors
    ├── MissingFileError       does not exist
    ├── FileExistsAlreadyError exists, and is not overwritten
    └── UnreadableFileError    is no safetensors file
"""

from collections.abc import Mapping
from difflib import get_close_matches


class AggregationError(Exception):
    """Root of all errors of this package. `exit_code` is what a command ends with."""

    exit_code = 1


class RuleUsageError(AggregationError, ValueError):
    """A rule or attack was asked for that does not exist or cannot work as set up."""

    exit_code = 2


class UnknownNameError(RuleUsageError):
    """No rule, pre-aggregator or attack has this name.

    Attributes:
        kind: Which of these was asked for.
        name: What was asked for.
        known: The names there are.
    """

    def __init__(self, kind: str, name: str, known: tuple[str, ...]) -> None:
        self.kind = kind
        self.name = name
        self.known = known
        super().__init__(f"there is no {kind} named {name!r}{suggestion(name, known)}")


class ParameterError(RuleUsageError):
    """A parameter is unknown, missing, or has an impossible value."""


class BoundError(RuleUsageError):
    """Fewer workers than the rule needs to bear f faults.

    Attributes:
        rule: Name of the rule.
        n: Workers counted, refused ones included.
        f: Faults to bear.
        bound: The rule's requirement as a formula, such as `n >= 2f + 3`.
        rows_min: The smallest n that would do.
    """

    def __init__(self, rule: str, n: int, f: int, bound: str, rows_min: int) -> None:
        self.rule, self.n, self.f, self.bound, self.rows_min = rule, n, f, bound, rows_min
        super().__init__(
            f"{rule} with f={f} needs {bound}, that is at least {rows_min} workers, "
            f"but n={n}: wait for more workers or lower f"
        )


class SearchLimitError(RuleUsageError):
    """An exact answer would take too long for this n and f. Take another rule."""


class MassError(AggregationError):
    """The heaviest f workers hold half of the voting mass or more.

    Attributes:
        rule: Name of the rule.
        f: Faults to bear.
        share: Of the mass that f workers can hold.
    """

    exit_code = 7

    def __init__(self, rule: str, f: int, share: float) -> None:
        self.rule, self.f, self.share = rule, f, share
        super().__init__(
            f"the heaviest f={f} workers hold {share:.0%} of the voting mass, and {rule} bears "
            "less than half: lower the cap or f, or wait for more workers"
        )


class TooManyBadRowsError(AggregationError):
    """More than f rows were refused, so the rest cannot be trusted either. Abandon the round.

    Attributes:
        rule: Name of the rule.
        n: Workers counted, refused ones included.
        f: Faults the rule was to bear.
        bound: The rule's requirement as a formula.
        refused: Reason by worker.
    """

    exit_code = 7

    def __init__(self, rule: str, n: int, f: int, bound: str, refused: Mapping[str, str]) -> None:
        self.rule, self.n, self.f, self.bound, self.refused = rule, n, f, bound, dict(refused)
        worker, reason = next(iter(refused.items()))
        super().__init__(
            f"{len(refused)} of n={n} rows are bad, more than the f={f} that {rule} "
            f"({bound}) was set to bear; worker {worker!r}: {reason}"
        )


class ShapeError(AggregationError, ValueError):
    """The rows cannot be read as n vectors of one length and floating dtype."""

    exit_code = 5


class LayoutMismatchError(ShapeError):
    """A state dict does not have the entries of the layout it is read with."""


class WorkerNameError(AggregationError, ValueError):
    """Worker ids are missing, repeated, or do not match the rows."""

    exit_code = 2


class BufferFullError(AggregationError):
    """Every row of the buffer is claimed. Refuse the message or make the buffer larger."""

    exit_code = 7


class TensorFileError(AggregationError):
    """A file of tensors cannot be read or written."""


class MissingFileError(TensorFileError):
    """The file does not exist, or is not a file."""

    exit_code = 3


class FileExistsAlreadyError(TensorFileError):
    """The file to write exists. Nothing is overwritten."""

    exit_code = 4


class UnreadableFileError(TensorFileError):
    """The content is not that of a safetensors file."""

    exit_code = 5


def suggestion(name: str, known: tuple[str, ...]) -> str:
    """Return the end of a sentence that says which name may have been meant."""
    close = [whole for whole in known if name in whole] or get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"; {meant}known: {', '.join(known)}" if known else "; it takes none"
