"""Squared distances between rows, right even where rows differ by far less than their length.

The Gram form |x|^2 + |y|^2 - 2xy cancels when all rows share a large offset,
and then a neighbour looks farther away than it is, or a row not nearest to
itself. So the rows are centred on one of them first, products are accumulated
in float64, and pairs that still cancel are measured directly.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pliska.aggregation.gate import squared_norm
from pliska.aggregation.rows import Rows

CANCELLATION = 1e-8
"""A squared distance below this share of the two squared lengths is measured directly."""


def squared_distances(rows: Rows) -> Tensor:
    """Return the squared Euclidean distances between all rows over the measured columns.

    Returns:
        float64 [n, n] on the CPU: symmetric, exactly zero on the diagonal.
    """
    return distances_within(rows, centred_gram(rows)[0])


def centred_gram(rows: Rows) -> tuple[Tensor, int]:
    """Return the inner products of all rows less one of them, over the measured columns.

    Returns:
        float64 [n, n] on the CPU, and the position of the row that was
        subtracted: its products are zero.
    """
    n = rows.n
    reference = _middle_row(rows)
    gram = torch.zeros((n, n), dtype=torch.float64, device=rows.tensors[0].device)
    for columns in rows.spans(rows.measured):
        block = rows.block(columns).to(torch.float64)
        block -= block[reference].clone()
        gram += block @ block.T
    return gram.cpu(), reference


def distances_within(rows: Rows, gram: Tensor) -> Tensor:
    """Return what `squared_distances` does, given the rows' centred Gram matrix."""
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
