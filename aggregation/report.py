"""What became of each worker's row, and how suspicious it looks.

Every rule reports in the same terms, so that whoever keeps reputations can
compare rounds and rules. The numbers explain a result; they are no evidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

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
