"""Coordinate-wise means without compilation: networks of elementwise minima and maxima, or sorts.

For machines without llvmlite, for dtypes without a kernel, and for few values,
which are not worth compiling for. Many times faster than a sort of short
columns; several times slower than the kernel, because every minimum is a pass
over a block in the cache. Written with NumPy, which takes half of torch's time
for this and starts no threads of its own; exchanges that do not touch each
other are made in one call, since threads take turns between calls.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from pliska.aggregation.engine.networks import Selection, Stage, layers
from pliska.aggregation.engine.statistics import Sums
from pliska.aggregation.engine.threads import over_spans

Array = NDArray[np.floating]

BLOCK_VALUES = 1 << 17
"""Values of a block: 512 KiB of float32, and what is made of it stays in a core's own cache."""

BLOCK_COLUMNS_MIN, BLOCK_COLUMNS_MAX = 1 << 12, 1 << 13
"""Shorter rows would be dominated by the interpreter; for longer ones BLAS starts threads."""

NETWORK_ROWS_MAX = 64
"""With more rows, to sort each column by itself takes less time than a network."""

TILE_COLUMNS = 64
"""Columns that are sorted at once, turned so that each lies in one piece of the cache."""

BLOCKS_OF_A_SPAN = 16
"""Blocks that one thread works on one after the other, in the same memory."""


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
    n = selection.n
    width = min(max(BLOCK_VALUES // n, BLOCK_COLUMNS_MIN), BLOCK_COLUMNS_MAX)
    matrix, result = _matrix(rows, out.dtype), out.numpy()

    def work(first: int, end: int) -> NDArray[np.float64]:
        memory = _Memory(selection, min(width, end - first), result.dtype, wide)
        sums = np.zeros((3, n))
        for start in range(first, end, width):
            stop = min(start + width, end)
            values = memory.copied(rows, start, stop) if matrix is None else matrix[:, start:stop]
            sums += memory.reduced(values, result[start:stop])
        return sums

    parts = over_spans(work, columns.start, columns.stop, width * BLOCKS_OF_A_SPAN)
    return Sums(*np.sum(parts, axis=0)) if parts else Sums(*np.zeros((3, n)))


def _matrix(rows: Sequence[Tensor], dtype: torch.dtype) -> Array | None:
    """Return rows that lie evenly in one piece of memory as [n, d], without a copy."""
    first, step = rows[0], rows[-1].data_ptr() - rows[0].data_ptr()
    nbytes = first.element_size() * max(len(rows) - 1, 1)
    memory = {row.untyped_storage().data_ptr() for row in rows}
    even = [first.data_ptr() + step // nbytes * first.element_size() * i for i in range(len(rows))]
    if first.dtype != dtype or step < 0 or step % nbytes or len(memory) > 1:
        return None
    if [row.data_ptr() for row in rows] != even or any(row.stride() != (1,) for row in rows):
        return None
    whole: Array = first.as_strided((len(rows), len(first)), (step // nbytes, 1)).numpy()
    return whole


class _Memory:
    """What work on one block after the other needs: first-touched memory would be slow.

    Args:
        selection: What is averaged.
        width: Columns of the widest block.
        dtype: Of the arithmetic.
        wide: Of squares.
    """

    def __init__(self, selection: Selection, width: int, dtype: DTypeLike, wide: DTypeLike) -> None:
        n = selection.n
        self._selection = selection
        self._has_network = n <= NETWORK_ROWS_MAX
        self._layers = layers(selection) if self._has_network else []
        touched = (
            [wire for stage in self._layers[0] for wire in stage.wires] if self._layers else []
        )
        self._untouched = set(range(n)).difference(touched)
        band = selection.band
        self._kept = (
            _together(selection.network().kept)
            if self._has_network
            else slice(band.start, band.stop)
        )
        self._values = np.empty((n, width), dtype)
        self._wires = np.empty((n, width), dtype)
        self._spare = np.empty((n // 2, width), dtype)
        is_wider = np.dtype(wide) != self._wires.dtype
        self._gaps = np.empty((n, width), wide) if is_wider else self._wires  # not needed any more
        self._total, self._ends = np.empty(width), np.empty((2, width), dtype)
        self._inside, self._below = np.empty((2, n, width), np.bool_)

    def copied(self, rows: Sequence[Tensor], start: int, stop: int) -> Array:
        """Return these columns of the rows as one block."""
        values = self._values[:, : stop - start]
        for place, row in zip(values, rows, strict=True):
            torch.from_numpy(place).copy_(row[start:stop])
        return values

    def reduced(self, values: Array, result: Array) -> NDArray[np.float64]:
        """Write the means of values [n, width] to `result`; return the sums, float64 [3, n]."""
        n, width = values.shape
        kept = self._sorted(values)[self._kept]
        total = self._total[:width]
        np.add.reduce(kept, axis=0, dtype=np.float64, out=total)
        np.divide(total, len(kept), out=total)
        np.copyto(result, total, casting="same_kind")
        sums = np.full((3, n), float(width))
        if not self._selection.is_whole:
            low, high = self._ends[:, :width]
            np.minimum.reduce(kept, axis=0, out=low)
            np.maximum.reduce(kept, axis=0, out=high)
            sums[2] = self._counts(values, low, high)
        with np.errstate(over="ignore", invalid="ignore"):
            sums[0], sums[1] = self._squares(values, result)
        return sums

    def _sorted(self, values: Array) -> Array:
        """Return the wires after the network; those that nothing reads are undefined."""
        wires = self._wires[:, : values.shape[1]]
        if not self._has_network:
            for start in range(0, values.shape[1], TILE_COLUMNS):
                tile = np.ascontiguousarray(values[:, start : start + TILE_COLUMNS].T)
                tile.sort(axis=1)
                wires[:, start : start + TILE_COLUMNS] = tile.T
            return wires
        if not self._layers:
            return values
        for wire in self._untouched:
            np.copyto(wires[wire], values[wire])
        for stage in self._layers[0]:
            low, high = values[stage.low], values[stage.high]
            np.minimum(low, high, out=wires[stage.low])
            np.maximum(low, high, out=wires[stage.high])
        for layer in self._layers[1:]:
            for stage in layer:
                self._exchange(wires[stage.low], wires[stage.high], stage)
        return wires

    def _exchange(self, low: Array, high: Array, stage: Stage) -> None:
        if stage.keeps_low and stage.keeps_high:
            spare = self._spare[: len(low), : low.shape[1]]
            np.minimum(low, high, out=spare)
            np.maximum(low, high, out=high)
            np.copyto(low, spare)
        elif stage.keeps_low:
            np.minimum(low, high, out=low)
        else:
            np.maximum(low, high, out=high)

    def _squares(self, values: Array, result: Array) -> tuple[Array, Array]:
        """Return each row's squared distance to the result and its squared length."""
        gaps = self._gaps[:, : len(result)]
        np.subtract(values, result, out=gaps, dtype=gaps.dtype)
        distances = _dots(gaps)
        if gaps.dtype == values.dtype:
            return distances, _dots(values)
        np.copyto(gaps, values)
        return distances, _dots(gaps)

    def _counts(self, values: Array, low: Array, high: Array) -> list[int]:
        """Return in how many columns each row lies within the ends."""
        inside, below = self._inside[:, : len(low)], self._below[:, : len(low)]
        np.greater_equal(values, low, out=inside)
        np.less_equal(values, high, out=below)
        np.logical_and(inside, below, out=inside)
        return [int(np.count_nonzero(row)) for row in inside]


def _dots(rows: Array) -> Array:
    """Return the sum of squares of each row, all in one call."""
    products: Array = np.matmul(rows[:, None, :], rows[:, :, None])[:, 0, 0]
    return products


def _together(wires: Sequence[int]) -> slice | list[int]:
    """Return an index of these wires, in any order; a slice needs no copy."""
    ordered = sorted(wires)
    if ordered == list(range(ordered[0], ordered[-1] + 1)):
        return slice(ordered[0], ordered[-1] + 1)
    return ordered
