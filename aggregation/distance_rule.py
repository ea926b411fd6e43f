"""Rules that decide on the distances between rows alone.

The rows are read once for their distances and once more for one weighted sum;
whatever a rule iterates, it does on n x n numbers.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pliska.aggregation.aggregator import Combination, Rule
from pliska.aggregation.distances import distances_to_combination, squared_distances
from pliska.aggregation.rows import Rows


@dataclass(frozen=True, slots=True)
class Choice:
    """What a distance rule decided from the distances alone, in row order.

    Attributes:
        weights: Weight of each row; they sum to 1.
        margins: How clearly it decided (see `WorkerReport.margin`).
        reasons: The decision on each row for people.
    """

    weights: Sequence[float]
    margins: Sequence[float]
    reasons: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class DistanceRule(Rule):
    """A rule that decides on the n x n distances and ends in one weighted sum of rows."""

    @abstractmethod
    def choose(self, distances: Tensor, f: int) -> Choice:
        """Weigh the rows.

        Args:
            distances: Squared distances, float64 [n, n] on the CPU, zero diagonal.
            f: Faults still to bear.
        """

    def combine(self, rows: Rows, f: int) -> Combination:
        """Read the rows once for their distances, and those with weight once more."""
        distances = squared_distances(rows)
        choice = self.choose(distances, f)
        return Combination(
            vector=rows.weighted_sum(choice.weights),
            weights=choice.weights,
            distances=distances_to_combination(distances, choice.weights),
            margins=choice.margins,
            reasons=choice.reasons,
        )
