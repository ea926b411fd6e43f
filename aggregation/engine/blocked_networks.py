"""Coordinate-wise means without compilation: few rows by a network, many by sorting columns.

For machines without llvmlite, for dtypes without a kernel, and for few values,
which are not worth compiling for. A network takes the minima and maxima of
whole rows; a sort turns a block so that each column lies in one piece of the
cache, where NumPy sorts it in vector registers. Both take several times as long
as the kernel, because every step is a pass over a block.

Written with NumPy, which starts no threads of its own here. Threads wait for
each other between calls, and that takes longer than a short call: so blocks are
as large as the cache allows, and there are few calls to a block.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from pliska.aggregation.engine.networks import Selection
from pliska.aggregation.engine.statistics import DOT_COLUMNS, Sums
from pliska.aggregation.engine.threads import sum_over_spans

Array = NDArray[np.floating]

_SHARED = frozenset({torch.float16, torch.float32, torch.float64})
"""Dtypes that NumPy has as well."""

NETWORK_ROWS_MAX = 11
"""With more rows, to sort each column takes less time than a network."""

NETWORK_VALUES, SORT_VALUES = 1 << 19, 1 << 18
"""Values of a block. A network is many calls, which must not be short; a sort is one."""

BLOCK_COLUMNS_MIN = 1 << 12
"""Of shorter rows NumPy copies what it combines with each of them."""

BLOCK_VALUES_MAX = 1 << 19
"""Of more than 128 rows that would be too much memory for each thread: blocks are shorter then."""

SORTED_TOGETHER = 16
"""Columns are filled up to a multiple: NumPy sorts float32 in registers of so many at most."""

SUMMED_COLUMNS = 1 << 8
"""Columns of one product with ones, too few for BLAS to start threads."""


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
    matrix, result = _matrix(rows, out.dtype), out.numpy()
    # NumPy copies a thousand short pieces in a tenth of torch's time.
    sources = [row.numpy() if row.dtype in _SHARED else _Widened(row) for row in rows]
    unused: dict[int, list[_Memory]] = defaultdict(list)

    def work(first: int, end: int) -> NDArray[np.float64]:
        try:
            memory = unused[end - first].pop()
        except IndexError:
            memory = _Memory(selection, end - first, result.dtype, wide)
        values = memory.copied(sources, first, end) if matrix is None else matrix[:, first:end]
        sums = memory.reduced(values, result[first:end])
        unused[end - first].append(memory)
        return sums

    values = NETWORK_VALUES if _has_network(selection) else SORT_VALUES
    fewest = min(BLOCK_COLUMNS_MIN, BLOCK_VALUES_MAX // selection.n)
    width = max(values // selection.n, fewest)
    zero = np.zeros((3, selection.n))
    return Sums(*sum_over_spans(work, zero, columns.start, columns.stop, width))


class _Widened:
    """A row whose dtype NumPy lacks: its pieces come as float32."""

    def __init__(self, row: Tensor) -> None:
        self._row = row

    def __getitem__(self, columns: slice) -> Array:
        found: Array = self._row[columns].float().numpy()
        return found


def _has_network(selection: Selection) -> bool:
    return selection.n <= NETWORK_ROWS_MAX or selection.is_whole


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


class _Band(Protocol):
    """Finds the selected values of each column of a block.

    Attributes:
        total: Their sum, float64 [width].
        low: The least of them [width]; undefined if all are selected.
        high: The largest.
    """

    total: NDArray[np.float64]
    low: Array
    high: Array

    def find(self, values: Array) -> None:
        """Look at values [n, width]."""


class _NetworkBand:
    """Finds a band by minima and maxima of whole rows."""

    def __init__(self, selection: Selection, width: int, dtype: DTypeLike) -> None:
        self.total = np.empty(width)
        self.low, self.high = np.empty((2, width), dtype)
        self._network = selection.network()
        self._is_whole = selection.is_whole
        self._rows = np.empty((0 if selection.is_whole else selection.n + 1, width), dtype)

    def find(self, values: Array) -> None:
        """Look at values [n, width]."""
        first, *others = self._collected(values)
        np.copyto(self.total, first)
        for row in others:
            np.add(self.total, row, out=self.total)
        if self._is_whole:
            return
        np.copyto(self.low, first)
        np.copyto(self.high, first)
        for row in others:
            np.minimum(self.low, row, out=self.low)
            np.maximum(self.high, row, out=self.high)

    def _collected(self, values: Array) -> list[Array]:
        """Return the rows of the kept wires.

        A minimum goes to memory that nothing reads any more, and the maximum
        takes its wire's own, unless that is still the caller's.
        """
        wires, free = list(values), list(self._rows)
        is_ours = [False] * len(wires)
        for exchange in self._network.exchanges:
            low, high = wires[exchange.low], wires[exchange.high]
            if exchange.keeps_low:
                np.minimum(low, high, out=free[-1])
                wires[exchange.low] = free.pop()
            if exchange.keeps_high:
                wires[exchange.high] = high if is_ours[exchange.high] else free.pop()
                np.maximum(low, high, out=wires[exchange.high])
            elif is_ours[exchange.high]:
                free.append(high)
            if is_ours[exchange.low]:
                free.append(low)
            is_ours[exchange.low] = exchange.keeps_low
            is_ours[exchange.high] = exchange.keeps_high
        return [wires[wire] for wire in self._network.kept]


class _SortedBand:
    """Finds a band by sorting each column by itself."""

    def __init__(self, selection: Selection, width: int, dtype: DTypeLike) -> None:
        n, self._band = selection.n, selection.band
        groups = -(-width // SUMMED_COLUMNS)
        self._turned = np.empty((width, -(-n // SORTED_TOGETHER) * SORTED_TOGETHER), dtype)
        self._column, self._filling = self._turned[:, :n], self._turned[:, n:]
        self._kept = np.zeros((groups, SUMMED_COLUMNS, len(self._band)))
        self._sums = np.empty((groups, SUMMED_COLUMNS))
        self.total = self._sums.reshape(-1)[:width]
        self.low, self.high = np.empty((2, width), dtype)

    def find(self, values: Array) -> None:
        """Look at values [n, width]."""
        np.copyto(self._column, values.T)
        self._filling.fill(np.inf)
        self._turned.sort(axis=1)
        start, stop = self._band.start, self._band.stop
        np.copyto(self.low, self._turned[:, start])
        np.copyto(self.high, self._turned[:, stop - 1])
        kept = self._kept.reshape(-1, len(self._band))[: len(self.low)]
        np.copyto(kept, self._turned[:, start:stop])
        np.matmul(self._kept, np.ones(len(self._band)), out=self._sums)


class _Memory:
    """What work on one block after the other needs: first-touched memory would be slow.

    Args:
        selection: What is averaged.
        width: Columns of a block.
        dtype: Of the arithmetic.
        wide: Of squares.
    """

    def __init__(self, selection: Selection, width: int, dtype: DTypeLike, wide: DTypeLike) -> None:
        self._selection = selection
        way = _NetworkBand if _has_network(selection) else _SortedBand
        self._band: _Band = way(selection, width, dtype)
        self._values = np.empty((selection.n, width), dtype)
        self._gaps = np.empty((selection.n, width), wide)
        self._inside, self._below = np.empty((2, selection.n, width), np.bool_)

    def copied(self, rows: Sequence["Array | _Widened"], start: int, stop: int) -> Array:
        """Return these columns of the rows as one block."""
        for place, row in zip(self._values, rows, strict=True):
            place[:] = row[start:stop]
        return self._values

    def reduced(self, values: Array, result: Array) -> NDArray[np.float64]:
        """Write the means of values [n, width] to `result`; return the sums, float64 [3, n]."""
        self._band.find(values)
        total = self._band.total
        np.divide(total, len(self._selection.band), out=total)
        np.copyto(result, total, casting="same_kind")
        sums = np.full((3, len(values)), float(len(result)))
        if not self._selection.is_whole:
            sums[2] = self._counts(values)
        with np.errstate(over="ignore", invalid="ignore"):
            sums[0], sums[1] = self._squares(values, result)
        return sums

    def _squares(self, values: Array, result: Array) -> tuple[Array, Array]:
        """Return each row's squared distance to the result and its squared length."""
        np.subtract(values, result, out=self._gaps, dtype=self._gaps.dtype)
        distances = _dots(self._gaps)
        if self._gaps.dtype == values.dtype:
            return distances, _dots(values)
        np.copyto(self._gaps, values)
        return distances, _dots(self._gaps)

    def _counts(self, values: Array) -> list[int]:
        """Return in how many columns each row lies within the ends of the band."""
        np.greater_equal(values, self._band.low, out=self._inside)
        np.less_equal(values, self._band.high, out=self._below)
        np.logical_and(self._inside, self._below, out=self._inside)
        return [int(np.count_nonzero(row)) for row in self._inside]


def _dots(rows: Array) -> NDArray[np.float64]:
    """Return the sum of squares of each row, in pieces for which BLAS starts no threads."""
    sums = np.zeros(len(rows))
    for start in range(0, rows.shape[1], DOT_COLUMNS):
        piece = rows[:, start : start + DOT_COLUMNS]
        sums += np.matmul(piece[:, None, :], piece[:, :, None])[:, 0, 0]
    return sums
