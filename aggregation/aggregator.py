"""What every rule is: parameters, a bound on n, and one call from rows to an aggregate.

A rule is a frozen dataclass of its parameters and holds no state between
calls. `Rule.aggregate` does what all rules share (read the rows, gate, check
the bound, report); a rule itself only says how rows that passed are combined.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar, overload

import torch
from torch import Tensor

from pliska.aggregation.buffer import GradientBuffer
from pliska.aggregation.errors import BoundError, ParameterError, ShapeError, TooManyBadRowsError
from pliska.aggregation.faces import Array, Input, State, Submission, canonical, submission
from pliska.aggregation.gate import Gate, squared_norm
from pliska.aggregation.report import Verdict, WorkerReport, bounded, refusal, suspicion
from pliska.aggregation.rows import Rows

V = TypeVar("V")

NOBODY: Mapping[str, str] = MappingProxyType({})
"""No worker was rejected on arrival."""


@dataclass(frozen=True, slots=True)
class Combination:
    """What a rule made of the rows that passed the gate; all lists are in row order.

    Attributes:
        vector: The aggregate [d], in the rows' arithmetic dtype.
        weights: Share of each row in it; they sum to 1.
        distances: Squared distance of each row to it, measured columns only.
        margins: How clearly the rule decided (see `WorkerReport.margin`).
        reasons: The decision on each row for people.
    """

    vector: Tensor
    weights: Sequence[float]
    distances: Sequence[float]
    margins: Sequence[float]
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Aggregation(Generic[V]):
    """The result of a rule.

    Attributes:
        vector: The aggregate, with the shape, dtype and kind of one row as it
            was handed in; float32 [d] for state dicts and buffers. Never an
            alias of the input.
        report: One entry per worker in canonical order, refused ones included.
    """

    vector: V
    report: tuple[WorkerReport, ...]
    _state: dict[str, Tensor] | None = None

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """The aggregate as a state dict; its float32 entries are views of `vector`.

        Raises:
            ShapeError: The rows were not state dicts.
        """
        if self._state is None:
            raise ShapeError("the rows were not state dicts; read `vector` instead")
        return self._state


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """Base of all rules. Subclasses state their formula, bound and cost.

    Attributes:
        f: Faults to bear: rows that may be arbitrary, refused ones included.
    """

    name: ClassVar[str]
    """Name in a job file."""

    f: int

    def __post_init__(self) -> None:
        require_count("f", self.f, 0)

    @property
    @abstractmethod
    def bound(self) -> str:
        """The rule's requirement on n as a formula, such as `n >= 2f + 3`."""

    @property
    @abstractmethod
    def rows_min(self) -> int:
        """The smallest n with which this rule bears its f."""

    @abstractmethod
    def combine(self, rows: Rows, f: int) -> Combination:
        """Combine rows that passed the gate.

        Args:
            rows: Finite, in canonical order, never mutated.
            f: Faults still to bear: this rule's f less the refused rows.
        """

    def check(self, n: int) -> None:
        """Raise `BoundError` if n workers, refused ones included, are too few."""
        if n < self.rows_min:
            raise BoundError(self.name, n, self.f, self.bound, self.rows_min)

    @overload
    def aggregate(
        self,
        rows: Tensor | GradientBuffer | Sequence[Tensor] | Sequence[State],
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        gate: Gate = ...,
    ) -> Aggregation[Tensor]: ...

    @overload
    def aggregate(
        self,
        rows: Array | Sequence[Array],
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        gate: Gate = ...,
    ) -> Aggregation[Array]: ...

    def aggregate(
        self,
        rows: Input,
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        gate: Gate = Gate(),  # noqa: B008 - frozen, so sharing one is safe
    ) -> Aggregation[Any]:
        """Combine one row per worker into one vector that f of them cannot steer.

        Args:
            rows: float [n, d] tensor or NumPy array, a list of tensors or
                arrays of one shape, a list of state dicts, or a
                `GradientBuffer`. Not mutated.
            worker_ids: One id per row; they set the canonical order. None
                names the rows "0", "1", ...
            rejected: Reason by worker for those refused before (on arrival);
                each spends one of f. A row of such a worker is left out.
            gate: What a row must satisfy to take part.

        Returns:
            The aggregate and one report per worker. The same bytes for any
            order of the rows.

        Raises:
            BoundError: n, refused rows included, is below the rule's bound.
            TooManyBadRowsError: More than f rows were refused.
            ShapeError: The rows cannot be read as vectors.
            WorkerNameError: The ids do not match the rows.
        """
        handed_in = submission(rows, worker_ids)
        refused = _refused(handed_in, rejected, gate)
        admitted = [i for i, worker in enumerate(handed_in.workers) if worker not in refused]
        n = len(admitted) + len(refused)
        self.check(n)
        if len(refused) > self.f:
            raise TooManyBadRowsError(self.name, n, self.f, self.bound, refused)
        made = self.combine(handed_in.rows.select(admitted), self.f - len(refused))
        state = handed_in.state(made.vector, admitted) if handed_in.state else None
        workers = [handed_in.workers[i] for i in admitted]
        report = _report(workers, made, refused, handed_in.rows.measured)
        return Aggregation(handed_in.restore(made.vector), report, state)

    @overload
    def __call__(
        self,
        rows: Tensor | GradientBuffer | Sequence[Tensor] | Sequence[State],
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
    ) -> Aggregation[Tensor]: ...

    @overload
    def __call__(
        self,
        rows: Array | Sequence[Array],
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
    ) -> Aggregation[Array]: ...

    def __call__(
        self,
        rows: Any,
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
    ) -> Aggregation[Any]:
        """Do what `aggregate` does, behind the ordinary gate."""
        return self.aggregate(rows, worker_ids, rejected)


def require_count(name: str, value: object, least: int) -> None:
    """Raise `ParameterError` unless `value` is an int of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ParameterError(f"{name} must be a whole number of at least {least}, not {value!r}")


def _refused(handed_in: Submission, rejected: Mapping[str, str], gate: Gate) -> dict[str, str]:
    """Return the reason by worker of all that take no part, in canonical order."""
    refused = {**handed_in.refused, **rejected}
    for position, reason in gate.refusals(handed_in.rows).items():
        refused.setdefault(handed_in.workers[position], reason)
    workers = list(refused)
    return {workers[i]: refused[workers[i]] for i in canonical(workers)}


def _report(
    workers: Sequence[str], made: Combination, refused: Mapping[str, str], measured: int
) -> tuple[WorkerReport, ...]:
    norm = squared_norm(made.vector[:measured])
    scores = suspicion(made.distances, norm * torch.finfo(torch.float32).eps ** 2)
    entries = [
        WorkerReport(
            worker=worker,
            weight=made.weights[i],
            score=scores[i],
            margin=bounded(made.margins[i]),
            verdict=Verdict.KEPT if made.weights[i] > 0 else Verdict.OUTVOTED,
            reason=made.reasons[i],
        )
        for i, worker in enumerate(workers)
    ] + [refusal(worker, reason) for worker, reason in refused.items()]
    return tuple(entries[i] for i in canonical([entry.worker for entry in entries]))
