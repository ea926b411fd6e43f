"""From a sealed round and its rows to one vector: by the rule, or by the Lipschitz filter.

Which of the two protects a round stands in the round itself. Here is what lasts
from round to round: the rule and the filter. The arithmetic is `combination`'s,
which a replay calls too. Blocks; called in threads by `coordinator.stepper`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from pliska.aggregation import Rule, Verdict, WorkerReport
from pliska.aggregation.report import refusal
from pliska.aggregation.setting import Memory
from pliska.coordinator.records.commit import FILTER
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.rounds.combination import Outcast, Row, combine, combine_filtered
from pliska.coordinator.rounds.gathering import Gatherings
from pliska.coordinator.rounds.lipschitz import Candidate, LipschitzFilter
from pliska.coordinator.rounds.round_events import Filtered
from pliska.coordinator.rounds.round_state import Sealed
from pliska.coordinator.rounds.staleness import damping
from pliska.coordinator.training.floor import filter_faults
from pliska.coordinator.wire.job import Job


@dataclass(frozen=True, slots=True)
class Combined:
    """What a round came to.

    Attributes:
        vector: The aggregate, float32 [d].
        report: One entry per worker, sorted by worker.
        rule: What decided, as the commit record names it.
        parameters: Of the rule: (name, JSON value), sorted by name.
        dampings: Factor by worker on its gradient.
    """

    vector: Tensor
    report: tuple[WorkerReport, ...]
    rule: str
    parameters: tuple[tuple[str, str], ...]
    dampings: Mapping[str, float]


class Combiner:
    """What combines the rounds of one leadership."""

    def __init__(self, job: Job, rule: Rule, gatherings: Gatherings) -> None:
        """Begin with a filter that has nothing to compare with.

        Args:
            job: The job.
            rule: Its rule.
            gatherings: How its rounds fill.
        """
        self._job = job
        self.rule = rule
        self._gatherings = gatherings
        self._outvoted: dict[str, WorkerReport] = {}
        self.forget()

    def forget(self) -> None:
        """Compare with nothing that was before: as a new leader begins, and after a rollback."""
        self._filter = LipschitzFilter()
        self._versions = 1
        self._outvoted = {}

    def publish(self, version: int, parameters: Tensor) -> None:
        """Hear of a version that gradients will be computed on.

        Args:
            version: Its number.
            parameters: float32 [d]; kept, so they must not change.
        """
        if self._gatherings.asynchronous.is_filtered:
            self._filter.publish(version, parameters, self._versions)

    def combine(
        self, sealed: Sealed, values: Mapping[str, Tensor], seed: int, memory: Memory | None
    ) -> Combined | Filtered:
        """Combine a round.

        Args:
            sealed: The round.
            values: float32 [d] by contributor.
            seed: Of the round.
            memory: What the rule remembers of the rounds before.

        Returns:
            The aggregate, or why nobody passed the filter.

        Raises:
            AggregationError: The rows cannot be aggregated.
        """
        if sealed.is_filtered:
            return self._filtered(sealed, values)
        self._outvoted = {}
        is_priming = self._is_priming(sealed)
        self._versions = self._gatherings.asynchronous.lag_max + 1 if is_priming else 1
        if is_priming:
            self._filter.prime(_candidates(sealed, values))
        dampings = self._dampings(sealed)
        rows = _rows(sealed, values, dampings)
        made = combine(rows, _outcasts(sealed), self.rule, seed, memory)
        if is_priming:
            self._filter.keep({e.worker for e in made.report if e.verdict is Verdict.KEPT})
        parameters = sorted(self._job.rule.parameters.items())
        return Combined(
            vector=made.vector,
            report=made.report,
            rule=self._job.rule.name,
            parameters=tuple((name, json.dumps(value)) for name, value in parameters),
            dampings=dampings,
        )

    def _filtered(self, sealed: Sealed, values: Mapping[str, Tensor]) -> Combined | Filtered:
        n = len(sealed.members)
        f = filter_faults(self.rule.f, n)
        head = sealed.round - 1
        judged = self._filter.judge(_candidates(sealed, values), head, n, f)
        passed = {w: values[w] for w, entry in judged.items() if entry.verdict is Verdict.KEPT}
        if not passed:
            self._outvoted |= judged
            return Filtered({worker: entry.reason for worker, entry in judged.items()})
        dampings = self._dampings(sealed)
        refused = [refusal(worker, reason) for worker, reason in sealed.refused.items()]
        shared = [replace(each, weight=each.weight / len(passed)) for each in judged.values()]
        before = [self._outvoted[worker] for worker in sealed.outvoted]
        self._outvoted = {}
        return Combined(
            vector=combine_filtered(_rows(sealed, passed, dampings)),
            report=tuple(sorted(before + shared + refused, key=lambda entry: entry.worker)),
            rule=FILTER,
            parameters=(("f", json.dumps(f)), ("n", json.dumps(n))),
            dampings=dampings,
        )

    def _is_priming(self, sealed: Sealed) -> bool:
        is_filtered = self._gatherings.asynchronous.is_filtered
        return is_filtered and sealed.setting.mode is Mode.ASYNCHRONOUS

    def _dampings(self, sealed: Sealed) -> dict[str, float]:
        exponent = self._gatherings.of(sealed.setting.mode, is_primed=True).damping
        return {worker: damping(sealed.lag(worker), exponent) for worker in sealed.slots}


def _candidates(sealed: Sealed, values: Mapping[str, Tensor]) -> list[Candidate]:
    return [
        Candidate(worker, vector, sealed.slots[worker].offer.round - 1)
        for worker, vector in values.items()
    ]


def _rows(sealed: Sealed, values: Mapping[str, Tensor], dampings: Mapping[str, float]) -> list[Row]:
    return [
        Row(worker, vector, dampings[worker], sealed.places.get(worker))
        for worker, vector in values.items()
    ]


def _outcasts(sealed: Sealed) -> list[Outcast]:
    return [
        Outcast(worker, reason, sealed.places.get(worker))
        for worker, reason in sealed.refused.items()
    ]
