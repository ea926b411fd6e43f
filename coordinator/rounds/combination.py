"""How the gradients of one round become one vector: the same in a round and in its replay.

Everything comes in: the rows, and about each what the commit record says of it.
So whoever has the record and the payloads gets the aggregate, bit for bit on
the same kind of device. Called by `coordinator.stepper`.

    damp what is late -> average within buffers, where there are any -> the rule

What passed the Lipschitz filter is averaged without a rule.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from pliska.aggregation import (
    BASGD,
    Aggregation,
    BufferState,
    FaultCount,
    Rule,
    Verdict,
    WorkerReport,
    rule_named,
)
from pliska.aggregation.report import refusal
from pliska.aggregation.setting import Given, Memory
from pliska.coordinator.records.commit import FILTER, CommitRecord


@dataclass(frozen=True, slots=True)
class Row:
    """One gradient.

    Attributes:
        values: float32 [d].
        damping: Factor, in (0, 1].
        buffer: That it is averaged in; None: it stands alone.
    """

    worker: str
    values: Tensor
    damping: float = 1.0
    buffer: int | None = None

    def damped(self) -> Tensor:
        """Return the gradient with what its age leaves of it; a copy only where that is less."""
        return self.values if self.damping == 1.0 else self.values * self.damping


@dataclass(frozen=True, slots=True)
class Outcast:
    """A gradient that was refused for its content; it spends one of the rule's f.

    Attributes:
        buffer: That it would have been averaged in; None: it stood alone.
    """

    worker: str
    reason: str
    buffer: int | None = None


def combine(
    rows: Sequence[Row],
    outcasts: Sequence[Outcast],
    rule: Rule,
    seed: int,
    memory: Memory | None = None,
) -> Aggregation[Tensor]:
    """Combine the rows of a round that the rule decides.

    Args:
        rows: In any order. Not changed.
        outcasts: What was refused on arrival.
        rule: Combines the rows, or the means of their buffers.
        seed: Of the round.
        memory: What the rule left in the round before.

    Returns:
        The aggregate, with one report per worker, sorted by worker.

    Raises:
        AggregationError: The rows cannot be aggregated.
    """
    given = Given(seed=seed, memory=memory)
    in_buffers = [each.buffer for each in rows] + [each.buffer for each in outcasts]
    if any(buffer is not None for buffer in in_buffers):
        return _combine_buffers(rows, outcasts, rule, given)
    ordered = sorted(rows, key=lambda row: row.worker)
    aggregation = rule.aggregate(
        [row.damped() for row in ordered],
        [row.worker for row in ordered],
        rejected={each.worker: each.reason for each in outcasts},
        **given,
    )
    return replace(aggregation, account=lambda: _by_worker(aggregation.report))


def combine_filtered(rows: Sequence[Row]) -> Tensor:
    """Average the gradients that passed the Lipschitz filter.

    Args:
        rows: At least one, in any order. Not changed.

    Returns:
        The mean of the damped rows, float32 [d]; new memory.
    """
    ordered = sorted(rows, key=lambda row: row.worker)
    vector = ordered[0].values * ordered[0].damping
    for row in ordered[1:]:
        vector.add_(row.values, alpha=row.damping)
    return vector.div_(len(ordered))


def recombine(
    record: CommitRecord, gradients: Mapping[str, Tensor], memory: Memory | None = None
) -> Aggregation[Tensor]:
    """Compute the aggregate of a committed round again.

    What the Lipschitz filter said rests on gradients of earlier rounds: its
    verdicts are taken as the record has them, and the rest follows.

    Args:
        record: The round.
        gradients: float32 [d] by worker, of each contribution that was not refused.
        memory: What the rule left in the round before.

    Returns:
        The aggregate, with one report per worker, sorted by worker.

    Raises:
        AggregationError: The record's rule is none of ours, or cannot combine the rows.
    """
    rows = [
        Row(each.worker, gradients[each.worker], each.damping, each.buffer)
        for each in record.contributions
        if each.verdict != Verdict.REFUSED
    ]
    if record.rule == FILTER:
        return _recombine_filtered(record, rows)
    outcasts = [
        Outcast(each.worker, each.reason, each.buffer)
        for each in record.contributions
        if each.verdict == Verdict.REFUSED
    ]
    rule = rule_named(record.rule, **_parameters(record))
    return combine(rows, outcasts, rule, record.seed, memory)


def _recombine_filtered(record: CommitRecord, rows: Sequence[Row]) -> Aggregation[Tensor]:
    kept = {each.worker for each in record.contributions if each.verdict == Verdict.KEPT}
    report = tuple(
        WorkerReport(
            each.worker, each.weight, each.score, each.margin, Verdict(each.verdict), each.reason
        )
        for each in record.contributions
    )
    vector = combine_filtered([row for row in rows if row.worker in kept])
    return Aggregation(vector, lambda: report, FaultCount(_parameters(record)["f"], "as recorded"))


def _parameters(record: CommitRecord) -> dict[str, Any]:
    return {name: json.loads(value) for name, value in record.rule_parameters}


def _combine_buffers(
    rows: Sequence[Row],
    outcasts: Sequence[Outcast],
    rule: Rule,
    given: Given,
) -> Aggregation[Tensor]:
    """Let the rule combine the means of the buffers; what it says of a mean holds for its rows."""
    numbers = sorted({row.buffer or 0 for row in rows} | {each.buffer or 0 for each in outcasts})
    buffers = BASGD(rule=rule, buffers=len(numbers))
    state = BufferState.empty(len(numbers))
    for row in sorted(rows, key=lambda row: row.worker):
        state = buffers.offer(state, numbers.index(row.buffer or 0), row.damped())
    means = {n: mean for n, mean in zip(numbers, state.means, strict=True) if mean is not None}
    spoiled = {each.buffer or 0: each.reason for each in outcasts if each.buffer not in means}
    aggregation = rule.aggregate(
        list(means.values()),
        [_buffer_name(number) for number in means],
        rejected={_buffer_name(number): reason for number, reason in spoiled.items()},
        **given,
    )
    by_buffer = {entry.worker: entry for entry in aggregation.report}
    counts = dict(zip(numbers, state.counts, strict=True))
    report = [
        _in_buffer(row.worker, by_buffer[_buffer_name(row.buffer or 0)], counts[row.buffer or 0])
        for row in rows
    ] + [refusal(each.worker, each.reason) for each in outcasts]
    return replace(aggregation, account=lambda: _by_worker(report))


def _by_worker(report: Iterable[WorkerReport]) -> tuple[WorkerReport, ...]:
    return tuple(sorted(report, key=lambda entry: entry.worker))


def _buffer_name(number: int) -> str:
    return f"buffer-{number}"


def _in_buffer(worker: str, buffer: WorkerReport, count: int) -> WorkerReport:
    """Report on one of the rows whose mean was reported on."""
    reason = f"{buffer.worker}: {buffer.reason}"
    return replace(buffer, worker=worker, weight=buffer.weight / count, reason=reason)
