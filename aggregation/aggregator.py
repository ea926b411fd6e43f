"""What every rule is: parameters, a bound on n, and one call from rows to an aggregate.

A rule is a frozen dataclass of its parameters and holds no state between
calls. `Rule.aggregate` does what all rules share (read the rows, gate, check
the bound, report); a rule itself only says how rows that passed are combined, and
with how many it bears f faults (`bounded`).
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self, Unpack, overload

from torch import Tensor

from pliska.aggregation import distances
from pliska.aggregation.bounded import Bounded
from pliska.aggregation.buffer import GradientBuffer
from pliska.aggregation.engine.results import blank
from pliska.aggregation.errors import ParameterError, TooManyBadRowsError
from pliska.aggregation.faces import (
    Array,
    Input,
    State,
    Submission,
    canonical,
    submission,
    trusted_vector,
)
from pliska.aggregation.faults import (
    FaultCount,
    faults_among,
    outliers,
)
from pliska.aggregation.gate import Gate
from pliska.aggregation.mass import VotingMass, require_honest_majority
from pliska.aggregation.points import ORIGIN, Combination, Points
from pliska.aggregation.preaggregation import Chain
from pliska.aggregation.report import report_on
from pliska.aggregation.result import Aggregation
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Given, Memory, Setting

NOBODY: Mapping[str, str] = MappingProxyType({})
"""No worker was rejected on arrival."""


@dataclass(frozen=True, kw_only=True)
class Rule(Bounded):
    """Base of all rules. Subclasses state their formula, bound and cost.

    See `Bounded` for `f` and `pre`, which every rule takes.
    """

    uses: ClassVar[frozenset[str]] = frozenset()
    """Which of the optional keyword arguments of a call it makes use of (see `Given`)."""
    rebuilds_memory: ClassVar[bool] = False
    """Whether its memory after a round follows from the aggregate, so that a log of aggregates
    rebuilds it (see `memory_after`)."""
    needs_origin: ClassVar[bool] = False
    """Whether it measures lengths and angles, not only distances between rows."""

    @abstractmethod
    def combine(self, points: Points, setting: Setting) -> Combination:
        """Combine points of rows that passed the gate.

        Args:
            points: The rows, or what `pre` made of them.
            setting: The circumstances; `setting.f` are the faults still to
                bear, this rule's f less the refused rows.
        """

    def read_ahead(self, rows: Rows, f: int) -> None:
        """Do what can be done before the gate, so that rows that pass are read once (see `Seen`).

        Args:
            rows: Candidates, not known to be finite.
            f: Faults still to bear if all pass.
        """
        del rows, f

    def landmarks(self, setting: Setting) -> Mapping[str, Tensor]:
        """Return vectors [d] to measure along with the rows."""
        del setting
        return {}

    def memory_after(self, vector: Tensor) -> Memory | None:
        """Return the memory after a round with this aggregate, where it follows from that alone.

        Args:
            vector: The aggregate [d]; not kept.
        """
        del vector
        return None

    def after(self, chain: Chain) -> Self:
        """Return this rule preceded by pre-aggregators: `chain | rule` in code."""
        return replace(self, pre=self.pre.after(chain))

    @overload
    def aggregate(
        self,
        rows: Tensor | GradientBuffer | Submission | Sequence[Tensor] | Sequence[State],
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        gate: Gate = ...,
        **given: Unpack[Given],
    ) -> Aggregation[Tensor]: ...

    @overload
    def aggregate(
        self,
        rows: Array | Sequence[Array],
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        gate: Gate = ...,
        **given: Unpack[Given],
    ) -> Aggregation[Array]: ...

    def aggregate(
        self,
        rows: Input | Submission,
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        gate: Gate = Gate(),  # noqa: B008 - frozen, so sharing one is safe
        **given: Unpack[Given],
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
            **given: See `Given`: the round's seed, voting masses, a trusted
                reference, the memory of the round before.

        Returns:
            The aggregate and one report per worker. The same bytes for any
            order of the rows.

        Raises:
            BoundError: n, refused rows included, is below the rule's bound.
            SearchLimitError: n is too large for an exact search.
            TooManyBadRowsError: More than f rows were refused.
            ShapeError: The rows cannot be read as vectors.
            WorkerNameError: The ids do not match the rows.
            ParameterError: The rule has no use for what is given, or lacks something.
            MassError: f workers could hold half of the voting mass.
        """
        handed_in = submission(rows, worker_ids)
        self._read_ahead(handed_in, rejected, given)
        refused = _refused(handed_in, rejected, gate)
        admitted = [i for i, worker in enumerate(handed_in.workers) if worker not in refused]
        n = len(admitted) + len(refused)
        self.check(n)
        most = faults_among(self.f, n, self.rows_needed)
        if len(refused) > most:
            raise TooManyBadRowsError(self.title, n, most, self.whole_bound, refused)
        workers = tuple(handed_in.workers[i] for i in admitted)
        passed = handed_in.rows.select(admitted)
        setting = self._setting(passed, workers, most - len(refused), given)
        points = Points.of(passed, self._all_landmarks(passed, setting))
        faults = self._faults(points, most, len(refused))
        setting = replace(setting, f=faults.count - len(refused))
        made = self.combine(self.pre.apply(points, setting), setting)
        return Aggregation(
            vector=handed_in.restore(made.vector),
            account=partial(report_on, workers, made, refused, passed.squared_lengths()),
            faults=faults,
            memory=made.memory,
            _state=handed_in.state(made.vector, admitted) if handed_in.state else None,
        )

    @overload
    def __call__(
        self,
        rows: Tensor | GradientBuffer | Sequence[Tensor] | Sequence[State],
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        **given: Unpack[Given],
    ) -> Aggregation[Tensor]: ...

    @overload
    def __call__(
        self,
        rows: Array | Sequence[Array],
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        **given: Unpack[Given],
    ) -> Aggregation[Array]: ...

    def __call__(
        self,
        rows: Any,
        worker_ids: Sequence[str] | None = None,
        rejected: Mapping[str, str] = NOBODY,
        **given: Unpack[Given],
    ) -> Aggregation[Any]:
        """Do what `aggregate` does, behind the ordinary gate."""
        return self.aggregate(rows, worker_ids, rejected, **given)

    def _read_ahead(self, handed_in: Submission, rejected: Mapping[str, str], given: Given) -> None:
        """Read ahead in the ordinary case: all rows are to take part, with nothing beside them."""
        if not handed_in.workers or not rejected.keys().isdisjoint(handed_in.workers):
            return
        if any(given.get(key) is not None for key in ("masses", "reference", "memory")):
            return
        spent = len(handed_in.refused.keys() | rejected.keys())
        n = len(handed_in.workers) + spent
        if self.f == "auto" or n < self.rows_min:
            return
        f = faults_among(self.f, n, self.rows_needed) - spent
        if self.pre.needs_geometry:
            distances.read_ahead(handed_in.rows)
        elif f >= 0 and not self.pre.members:
            self.read_ahead(handed_in.rows, f)

    def _setting(self, rows: Rows, workers: tuple[str, ...], f: int, given: Given) -> Setting:
        """Check what the caller gave, and put it into row order."""
        masses, memory = given.get("masses"), given.get("memory")
        for key in ("masses", "reference", "memory"):
            if given.get(key) is not None and key not in self.uses:
                raise ParameterError(f"{self.name} has no use for {key}")
        if "reference" in self.uses and given.get("reference") is None:
            raise ParameterError(f"{self.name} needs a trusted row: pass reference=")
        if masses is not None and not isinstance(masses, VotingMass):
            raise ParameterError(
                f"masses must be a VotingMass({{worker: mass, ...}}), not {type(masses).__name__}"
            )
        if masses is not None and not self.pre.keeps_workers:
            raise ParameterError(f"{self.title} mixes workers, so it cannot keep their masses")
        votes = None if masses is None else masses.among(workers)
        if votes is not None:
            require_honest_majority(self.title, votes, f)
        reference = given.get("reference")
        if reference is not None:
            reference = trusted_vector("reference", reference, rows)
        if memory is not None:
            memory = _trusted_memory(memory, rows)
        return Setting(f, workers, given.get("seed", 0), votes, reference, memory)

    def _all_landmarks(self, rows: Rows, setting: Setting) -> dict[str, Tensor]:
        """Return the rule's own landmarks, and the origin if anything measures lengths."""
        landmarks = dict(self.landmarks(setting))
        if self.needs_origin or self.pre.needs_origin:
            landmarks[ORIGIN] = blank(rows.tensors[0])
        return landmarks

    def _faults(self, points: Points, most: int, refused: int) -> FaultCount:
        """Say how many faults this round bears, refused rows included."""
        if self.f != "auto":
            share = f"{self.f:g} of the workers, rounded up" if isinstance(self.f, float) else "set"
            return FaultCount(most, share)
        found = outliers(points.geometry, most - refused)
        return FaultCount(found.count + refused, found.reason)


def _trusted_memory(memory: object, rows: Rows) -> Memory:
    if not isinstance(memory, Mapping):
        raise ParameterError("memory must be that of the round before: vectors by name")
    return {name: trusted_vector(f"memory {name!r}", memory[name], rows) for name in memory}


def _refused(handed_in: Submission, rejected: Mapping[str, str], gate: Gate) -> dict[str, str]:
    """Return the reason by worker of all that take no part, in canonical order."""
    refused = {**handed_in.refused, **rejected}
    for position, reason in gate.refusals(handed_in.rows).items():
        refused.setdefault(handed_in.workers[position], reason)
    workers = list(refused)
    return {workers[i]: refused[workers[i]] for i in canonical(workers)}
