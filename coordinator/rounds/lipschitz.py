"""Kardam's filter with the vectors that it compares: whose gradient changed too fast is left out.

Of each worker it keeps the gradient that was accepted last and the model that
one was computed on; beside them the models that gradients may still be computed
on. That is the price of steps along single gradients: up to n gradients and n
models of memory. The decisions are `pliska.aggregation.Kardam`'s. Held by
`coordinator.stepper` while it leads; a new leader primes its own.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from torch import Tensor

from pliska.aggregation import Arrival, Kardam, KardamState, Verdict, WorkerReport
from pliska.aggregation.report import SCORE_MAX

BLOCK_ELEMENTS = 2**20
"""Values whose differences are held at once."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A gradient that wants to pass.

    Attributes:
        values: float32 [d]; not changed, not kept.
        version: That it was computed on.
    """

    worker: str
    values: Tensor
    version: int


@dataclass(frozen=True, slots=True)
class _Reference:
    """What the next gradient of a worker is compared with."""

    values: Tensor
    model: Tensor


class LipschitzFilter:
    """Judges the gradients of one job, one after the other."""

    def __init__(self) -> None:
        self._state = KardamState()
        self._references: dict[str, _Reference] = {}
        self._models: dict[int, Tensor] = {}

    def publish(self, version: int, parameters: Tensor, versions: int) -> None:
        """Remember a version that gradients will be computed on.

        Args:
            version: Its number.
            parameters: float32 [d]; kept, so they must not change.
            versions: How many of the newest versions to remember.
        """
        self._models[version] = parameters
        self._models = {n: x for n, x in self._models.items() if n > version - versions}

    def prime(self, candidates: Sequence[Candidate]) -> None:
        """Compare with these gradients from now on; all others are forgotten."""
        self._state = KardamState(self._state.coefficients)
        self._references = {}
        for candidate in candidates:
            self._refer_to(candidate)

    def keep(self, workers: Collection[str]) -> None:
        """Forget the gradients of all but these workers, whose next one will be their first."""
        self._references = {w: r for w, r in self._references.items() if w in workers}

    def judge(
        self, candidates: Sequence[Candidate], head: int, n: int, f: int
    ) -> dict[str, WorkerReport]:
        """Judge gradients in the order of their workers, each as if it had come after the last.

        A worker's first gradient is not taken, but the next is compared with it.

        Args:
            candidates: At most one of each worker.
            head: The newest version.
            n: Workers.
            f: Byzantine ones to bear.

        Returns:
            One report per worker: `KEPT`, or `OUTVOTED`, since an honest gradient
            may be left out too. Its score is its Lipschitz coefficient, squared,
            by the median worker's.
        """
        kardam = Kardam(n=n, f=f, alpha=0)
        reports = {}
        for candidate in sorted(candidates, key=lambda each: each.worker):
            arrival = self._arrival(candidate, head)
            self._state, verdict = kardam.judge(self._state, arrival)
            if verdict.is_accepted or candidate.worker not in self._references:
                self._refer_to(candidate)
            reports[candidate.worker] = WorkerReport(
                worker=candidate.worker,
                weight=1.0 if verdict.is_accepted else 0.0,
                score=_score(self._state.coefficients, candidate.worker),
                margin=1.0 if verdict.is_accepted else -1.0,
                verdict=Verdict.KEPT if verdict.is_accepted else Verdict.OUTVOTED,
                reason=verdict.reason,
            )
        return reports

    def _arrival(self, candidate: Candidate, head: int) -> Arrival:
        reference = self._references.get(candidate.worker)
        model = self._models.get(candidate.version)
        staleness = head - candidate.version
        if reference is None or model is None:
            return Arrival(candidate.worker, None, 0.0, staleness)
        return Arrival(
            candidate.worker,
            _distance(candidate.values, reference.values),
            _distance(model, reference.model),
            staleness,
        )

    def _refer_to(self, candidate: Candidate) -> None:
        model = self._models.get(candidate.version)
        if model is not None:
            self._references[candidate.worker] = _Reference(candidate.values.clone(), model)


def _distance(a: Tensor, b: Tensor) -> float:
    """Return the length of the difference of two vectors [d], summed in float64."""
    total = 0.0
    for start in range(0, len(a), BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        difference = a[block].double() - b[block].double()
        total += float(difference.dot(difference))
    return math.sqrt(total)


def _score(coefficients: Mapping[str, float], worker: str) -> float:
    """Say how fast a worker's gradients change, 1 being ordinary."""
    own, ordinary = coefficients.get(worker), median(coefficients.values() or [0.0])
    if own is None or ordinary == 0:
        return 1.0
    return min((own / ordinary) ** 2, SCORE_MAX)
