"""Squared distances between rows, right even where rows differ by far less than their length.

The Gram form |x|^2 + |y|^2 - 2xy cancels when all rows share a large offset,
and then a neighbour looks farther away than it is, or a row not nearest to
itself. So the rows are centred on one of them first, products are accumulated
in float64, and pairs that still cancel are measured directly.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pliska.aggregation.aggregator import Combination, Rule
from pliska.aggregation.gate import squared_norm
from pliska.aggregation.rows import Rows

CANCELLATION = 1e-8
"""A squared distance below this share of the two squared lengths is measured directly."""


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


def squared_distances(rows: Rows) -> Tensor:
    """Return the squared Euclidean distances between all rows over the measured columns.

    Returns:
        float64 [n, n] on the CPU: symmetric, exactly zero on the diagonal.
    """
    n = rows.n
    reference = _middle_row(rows)
    gram = torch.zeros((n, n), dtype=torch.float64, device=rows.tensors[0].device)
    for columns in rows.spans(rows.measured):
        block = rows.block(columns).to(torch.float64)
        block -= block[reference].clone()
        gram += block @ block.T
    gram = gram.cpu()
    lengths = gram.diagonal()
    sums = lengths[:, None] + lengths[None, :]
    distances = sums - (gram + gram.T)
    doubtful = (distances < CANCELLATION * sums).triu(diagonal=1).nonzero().tolist()
    for i, j in doubtful:
        distances[i, j] = distances[j, i] = _direct_distance(rows, i, j)
    return distances.fill_diagonal_(0.0)


def distances_to_combination(distances: Tensor, weights: Sequence[float]) -> list[float]:
    """Return each row's squared distance to the sum of weights[i] * row i.

    Follows from the distances between rows: for weights w that sum to 1 it is
    (D w)_i - w'Dw / 2.
    """
    weight = torch.tensor(weights, dtype=torch.float64)
    spread = distances @ weight
    to_combination: list[float] = (spread - weight @ spread / 2).clamp(min=0).tolist()
    return to_combination


def _middle_row(rows: Rows) -> int:
    """Return the row of median length, which f < n/2 liars cannot make a huge one."""
    lengths = [squared_norm(row[: rows.measured]) for row in rows.tensors]
    return sorted(range(rows.n), key=lambda i: (lengths[i], i))[rows.n // 2]


def _direct_distance(rows: Rows, i: int, j: int) -> float:
    pair = rows.select([i, j])
    total = 0.0
    for columns in pair.spans(rows.measured):
        first, second = pair.block(columns).to(torch.float64)
        total += float((first - second).square().sum())
    return total
