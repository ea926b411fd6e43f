"""What a pass over the rows finds out about each row beside the result."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import reports
from pliska.aggregation.engine.compiler import host_for
from pliska.aggregation.engine.threads import sum_over_spans

SQUARE_MIN = 1e-30
"""Squares that average less than this were partly lost to float32's range."""

EXACT_COLUMNS = 1 << 16
"""Columns widened to float64 at once; so few are always summed in float64."""

DOT_COLUMNS = 1 << 13
"""Columns of one float32 dot product, too few for the library to start threads of its own."""


DISTANCES, LENGTHS, KEPT, CARRIED = range(4)
"""Places in `Sums.stacked`; carried are lengths over columns that do not count as measured."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over columns, each float64 [n].

    Attributes:
        distances: Squared distance of each row to the result.
        lengths: Squared length of each row; not finite if the row is not.
        kept: Columns in which the row lies within the kept range.
    """

    distances: NDArray[np.float64]
    lengths: NDArray[np.float64]
    kept: NDArray[np.float64]

    @property
    def stacked(self) -> Tensor:
        """All of them, float64 [4, n]; room for the lengths over carried columns is zero."""
        stacked = np.zeros((4, len(self.kept)))
        stacked[DISTANCES], stacked[LENGTHS], stacked[KEPT] = (
            self.distances,
            self.lengths,
            self.kept,
        )
        return torch.from_numpy(stacked)


def repaired(sums: Sums, rows: Sequence[Tensor], result: Tensor, columns: slice) -> Sums:
    """Form anew what float32 squares cannot hold: of values beyond 1e19 or below 1e-15.

    Args:
        sums: Formed from float32 squares.
        rows: n tensors [d].
        result: [d].
        columns: Which were summed.
    """
    least = SQUARE_MIN * (columns.stop - columns.start)
    both = np.concatenate([sums.distances, sums.lengths])
    if both.min() >= least and both.max() < np.inf:
        return sums
    distances, lengths = sums.distances.copy(), sums.lengths.copy()
    for i, row in enumerate(rows):
        if not (least <= lengths[i] < np.inf):
            lengths[i] = squares(row, columns)
        if not (least <= distances[i] < np.inf) and np.isfinite(lengths[i]):
            distances[i] = squares(row, columns, result)
    return Sums(distances, lengths, sums.kept)


def squared_lengths(rows: Sequence[Tensor], columns: slice) -> Tensor:
    """Return what `squared_length` does of each of n rows, float64 [n] on their device.

    Waits for no device.
    """
    if rows[0].device.type == "cpu":
        return torch.tensor(_lengths_on_cpu(rows, columns), dtype=torch.float64)
    return norms(row[columns] for row in rows).square()


def norms(vectors: Iterable[Tensor]) -> Tensor:
    """Return the lengths of n vectors, float64 [n] on their device, without waiting for it."""
    return torch.stack([torch.linalg.vector_norm(each, dtype=torch.float64) for each in vectors])


def _lengths_on_cpu(rows: Sequence[Tensor], columns: slice) -> list[float]:
    width = columns.stop - columns.start
    target = host_for(rows) if width >= EXACT_COLUMNS else None
    if target is None:
        return [squared_length(row, columns) for row in rows]
    return [
        length if SQUARE_MIN * width <= length < np.inf else squares(row, columns)
        for row, length in zip(rows, reports.lengths(target, rows, columns).tolist(), strict=True)
    ]


def squared_length(row: Tensor, columns: slice) -> float:
    """Return the sum of squares of `row` [d] over these columns; not finite if any value is not.

    Within a few thousand columns squares of large rows are added in float32,
    which is exact to about 1e-7, unless float32 cannot hold them.
    """
    width = columns.stop - columns.start
    if row.device.type != "cpu" or row.dtype == torch.float64 or width < EXACT_COLUMNS:
        return squares(row, columns)

    def part(first: int, end: int) -> float:
        pieces = (
            row[start : min(start + DOT_COLUMNS, end)].to(torch.float32)
            for start in range(first, end, DOT_COLUMNS)
        )
        return sum(float(torch.dot(piece, piece)) for piece in pieces)

    total = sum_over_spans(part, 0.0, columns.start, columns.stop)
    return total if SQUARE_MIN * width <= total < np.inf else squares(row, columns)


def squares(row: Tensor, columns: slice, origin: Tensor | None = None) -> float:
    """Return the sum of squares of `row` [d], or of its difference to `origin`, in float64."""
    total = torch.zeros((), dtype=torch.float64, device=row.device)
    for part in _parts(columns):
        values = row[part].to(torch.float64)
        if origin is not None:
            values = values - origin[part]
        total += torch.dot(values, values)
    return float(total)


def _parts(columns: slice) -> Iterator[slice]:
    for start in range(columns.start, columns.stop, EXACT_COLUMNS):
        yield slice(start, min(start + EXACT_COLUMNS, columns.stop))
