"""What became of each worker's row, and how suspicious it looks.

Every rule reports in the same terms, so that whoever keeps reputations can
compare rounds and rules. The numbers explain a result; they are no evidence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

import torch

from pliska.aggregation.faces import canonical
from pliska.aggregation.points import Combination

SCORE_MAX = 1e6
"""Scores stop here, so that a report is finite whatever a row says."""


class Verdict(StrEnum):
    """What became of a row."""

    KEPT = "kept"
    """It is part of the aggregate (for coordinate-wise rules, in some coordinates)."""
    OUTVOTED = "outvoted"
    """It passed the gate, and the rule gave it no weight. An honest row may be outvoted."""
    REFUSED = "refused"
    """It never reached the rule; it spent one of f."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One worker's share in one aggregation.

    Attributes:
        worker: Worker id.
        weight: Share of the aggregate made of this row, in [0, 1]; all shares
            sum to 1. Coordinate-wise rules count the coordinates in which the
            row lies within the kept range (ties count for each).
        score: Suspicion in one unit for all rules: squared distance of the row
            to the aggregate, divided by the median of that over the rows of
            the round. 1 is ordinary, `SCORE_MAX` the most; refused rows have
            `SCORE_MAX`. Float buffers do not count. A low score acquits
            nobody: attacks that hide among the honest have one.
        margin: How clearly the rule decided, in the rule's own terms (its
            docstring says which): above 0 inside, below 0 outside, at most
            `SCORE_MAX` either way; -1 for refused rows.
        verdict: What became of the row.
        reason: The same for people, with the rule's own numbers.
    """

    worker: str
    weight: float
    score: float
    margin: float
    verdict: Verdict
    reason: str


def report_on(
    workers: Sequence[str],
    made: Combination,
    refused: Mapping[str, str],
    lengths: Sequence[tuple[float, float]],
) -> tuple[WorkerReport, ...]:
    """Report on every worker of a round, in canonical order.

    Args:
        workers: Whose rows were combined, in row order.
        made: What the rule made of them.
        refused: Reason by worker of the others.
        lengths: Squared lengths of the rows, measured columns first.
    """
    stand = made.standing()
    numbers = torch.stack([stand.weights, stand.margins, stand.distances])
    weights, margins, distances = numbers.cpu().tolist()
    scores = suspicion(distances, _resolution(lengths))
    entries = [
        WorkerReport(
            worker=worker,
            weight=weights[i],
            score=scores[i],
            margin=bounded(margins[i]),
            verdict=Verdict.KEPT if weights[i] > 0 else Verdict.OUTVOTED,
            reason=reason,
        )
        for i, (worker, reason) in enumerate(zip(workers, made.reasons(), strict=True))
    ] + [refusal(worker, reason) for worker, reason in refused.items()]
    return tuple(entries[i] for i in canonical([entry.worker for entry in entries]))


def refusal(worker: str, reason: str) -> WorkerReport:
    """Return the report on a row that never reached the rule."""
    return WorkerReport(worker, 0.0, SCORE_MAX, -1.0, Verdict.REFUSED, reason)


def suspicion(distances: Sequence[float], resolution: float) -> list[float]:
    """Turn squared distances to the aggregate into scores (see `WorkerReport.score`).

    Args:
        distances: Squared distance of each row to the aggregate, float64.
        resolution: Squared distance below which rows count as equal, so that
            rounding among equal rows does not look like disagreement.
    """
    ordinary = max(median(distances), resolution)
    if ordinary == 0:
        return [SCORE_MAX if distance > 0 else 0.0 for distance in distances]
    return [min(distance / ordinary, SCORE_MAX) for distance in distances]


def bounded(margin: float) -> float:
    """Keep a margin within plus and minus `SCORE_MAX`."""
    return max(-SCORE_MAX, min(margin, SCORE_MAX))


def _resolution(lengths: Sequence[tuple[float, float]]) -> float:
    """Return the squared distance to the aggregate that rounding alone can make.

    It matters where most rows are equal but for rounding. Then the aggregate is
    as long as they are.
    """
    return torch.finfo(torch.float32).eps ** 2 * median(measured for measured, _ in lengths)
