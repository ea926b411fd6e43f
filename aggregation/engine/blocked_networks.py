"""Coordinate-wise means without compilation: networks of elementwise minima and maxima.

For machines without llvmlite, for dtypes without a kernel, and for few values,
which are not worth compiling for. Much faster than a sort of short columns;
several times slower than the kernel, because every minimum is a pass over a
block in the cache. Written with NumPy, whose elementwise operations take half
the time of torch's on blocks of this size, and which let two threads run.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from pliska.aggregation.engine.networks import Selection
from pliska.aggregation.engine.statistics import Sums
from pliska.aggregation.engine.threads import over_spans

Array = NDArray[np.floating]

BLOCK_ELEMENTS = 1 << 19
"""Values of a block: 2 MiB of float32. Smaller ones fit the cache better, but then threads
spend their time handing each other the interpreter."""

BLOCK_COLUMNS_MIN = 1 << 12
"""Shorter rows would be dominated by the interpreter."""


def select_mean(
    rows: Sequence[Tensor], selection: Selection, columns: slice, out: Tensor, wide: DTypeLike
) -> Sums:
    """Write the mean of the selected values of each column to `out`.

    Args:
        rows: n finite tensors [d] on the CPU.
        selection: What is averaged.
        columns: Which; start and stop given.
        out: float32 or float64 [d], contiguous; only `columns` are written.
        wide: Dtype in which squares are formed. float64 holds all; float32 is
            faster, see `statistics.repaired`.

    Returns:
        Sums over `columns`.
    """
    results = out.numpy()

    def work(first: int, end: int) -> NDArray[np.float64]:
        values = [row[first:end].to(out.dtype).numpy() for row in rows]
        total, ends = _reduced([value.copy() for value in values], selection)
        results[first:end] = total
        return _looked_at(values, results[first:end], ends, wide)

    width = max(BLOCK_COLUMNS_MIN, BLOCK_ELEMENTS // len(rows))
    parts = over_spans(work, columns.start, columns.stop, width)
    return Sums(*np.sum(parts, axis=0)) if parts else Sums(*np.zeros((3, selection.n)))


def _reduced(wires: list[Array], selection: Selection) -> tuple[Array, tuple[Array, Array] | None]:
    """Return the means of the columns of n values [width], used up here, and the kept range."""
    network = selection.network()
    spare = np.empty_like(wires[0])
    for exchange in network.exchanges:
        low, high = wires[exchange.low], wires[exchange.high]
        if exchange.keeps_low and exchange.keeps_high:
            np.fmin(low, high, out=spare)
            np.fmax(low, high, out=high)
            wires[exchange.low], spare = spare, low
        elif exchange.keeps_low:
            np.fmin(low, high, out=low)
        else:
            np.fmax(low, high, out=high)
    kept = [wires[wire] for wire in network.kept]
    if selection.nearest is not None:
        kept = _nearest(kept, selection.nearest)
    total = kept[0].astype(np.float64)
    for value in kept[1:]:
        np.add(total, value, out=total)
    total /= len(kept)
    if selection.is_whole:
        return total, None
    low, high = kept[0].copy(), kept[0].copy()
    for value in kept[1:]:
        np.fmin(low, value, out=low)
        np.fmax(high, value, out=high)
    return total, (low, high)


def _nearest(ordered: list[Array], count: int) -> list[Array]:
    """Return the `count` values nearest to the median of each column.

    See `band_kernel`: of the ranks j, j + count, j + 2 count, ... exactly one
    is among them.
    """
    n = len(ordered)
    median = (ordered[(n - 1) // 2].astype(np.float64) + ordered[n // 2]) / 2
    chosen = []
    for first in range(count):
        best = ordered[first]
        for other in ordered[first + count :: count]:
            best = np.where(np.abs(other - median) < np.abs(best - median), other, best)
        chosen.append(best)
    return chosen


def _looked_at(
    values: list[Array], result: Array, ends: tuple[Array, Array] | None, wide: DTypeLike
) -> NDArray[np.float64]:
    """Return the sums of one block as [3, n]."""
    width = len(result)
    sums = np.full((3, len(values)), float(width))
    middle, gap = result.astype(wide), np.empty(width, wide)
    inside, below = np.empty(width, np.bool_), np.empty(width, np.bool_)
    with np.errstate(over="ignore"):
        for i, row in enumerate(values):
            widened = row.astype(wide, copy=False)
            np.subtract(widened, middle, out=gap)
            sums[0, i], sums[1, i] = np.dot(gap, gap), np.dot(widened, widened)
            if ends is not None:
                np.greater_equal(row, ends[0], out=inside)
                np.less_equal(row, ends[1], out=below)
                np.logical_and(inside, below, out=inside)
                sums[2, i] = np.count_nonzero(inside)
    return sums
