"""Coordinate-wise means by the compiled kernel: which, where, and what it found out.

`order_statistics` asks here first and does the work with torch where this
answers that it cannot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import band_kernel
from pliska.aggregation.engine.band_kernel import LANES, STATISTICS, Selection, Tiling
from pliska.aggregation.engine.compiler import Host, Kernel, compiled, host
from pliska.aggregation.engine.memory import addresses, are_plain, scratch
from pliska.aggregation.engine.threads import over_spans

ROWS_MAX = 64
"""More rows make networks that take long to compile."""

TILE_COLUMNS = 256
RARE_ELEMENTS = 1 << 16
"""Fewer values than this are not worth compiling for."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What the kernel adds up while it has the columns at hand, each float64 [n].

    Sums of squares are formed in float32 within a tile, so they are not finite
    for values beyond 1e19 and vanish for values below 1e-19.

    Attributes:
        distances: Squared distance of each row to the result.
        lengths: Squared length of each row; not finite if the row is not.
        kept: Columns in which the row lies within the kept range.
    """

    distances: NDArray[np.float64]
    lengths: NDArray[np.float64]
    kept: NDArray[np.float64]


def can_select(rows: Sequence[Tensor], selection: Selection) -> bool:
    """Return whether the kernel can do this and is worth it."""
    target = host()
    return (
        target is not None
        and selection.n <= ROWS_MAX
        and rows[0].device.type == "cpu"
        and target.element(rows[0].dtype) is not None
        and selection.n * rows[0].numel() >= RARE_ELEMENTS
    )


def select_mean(
    rows: Sequence[Tensor], selection: Selection, columns: slice, out: Tensor
) -> Sums:
    """Write the mean of the selected values of each column to `out`.

    Args:
        rows: n tensors [d] of a dtype in `elements`, on the CPU. If a value is
            not finite, `lengths` tells, and `out` is undefined.
        selection: What is averaged.
        columns: Which; start and stop given.
        out: float32 [d]; only `columns` are written.

    Returns:
        Sums over `columns`.
    """
    target = host()
    assert target is not None, "can_select was not asked"
    work = _Work(rows, selection, out, target)
    whole = columns.start + (columns.stop - columns.start) // LANES * LANES
    parts = over_spans(work.span, columns.start, whole)
    if whole < columns.stop:
        parts.append(work.rest(whole, columns.stop))
    total = np.sum(parts, axis=0) if parts else np.zeros((STATISTICS, selection.n))
    if selection.is_whole:
        total[2] = columns.stop - columns.start
    return Sums(*total)


@lru_cache(maxsize=256)
def _kernel(target: Host, selection: Selection, dtype: torch.dtype) -> Kernel:
    element = target.element(dtype)
    assert element is not None, "can_select was not asked"
    assembly = band_kernel.band_assembly("band", selection, element, _tiling(target))
    return compiled(target, "band", assembly, tuple(band_kernel.ARGUMENTS.values()))


def _tiling(target: Host) -> Tiling:
    return Tiling(target.lanes, TILE_COLUMNS, rows_at_once=4 if target.registers > 16 else 2)


class _Work:
    def __init__(
        self, rows: Sequence[Tensor], selection: Selection, out: Tensor, target: Host
    ) -> None:
        self._rows = rows
        self._n = selection.n
        self._out = out
        self._are_plain = are_plain(rows)
        self._scratch_floats = band_kernel.scratch_floats(selection.n, _tiling(target))
        self._kernel = _kernel(target, selection, rows[0].dtype)

    def span(self, first: int, end: int) -> NDArray[np.float64]:
        """Work on columns first..end, a multiple of `LANES`."""
        if self._are_plain:
            return self._run(addresses(self._rows, first), end - first, self._out[first:end])
        block = torch.stack([row[first:end] for row in self._rows])
        return self._run(addresses(tuple(block)), end - first, self._out[first:end])

    def rest(self, first: int, end: int) -> NDArray[np.float64]:
        """Work on the last few columns, filled up with zeros."""
        block = torch.zeros((self._n, LANES), dtype=self._rows[0].dtype)
        out = torch.empty(LANES)
        width = end - first
        for row, values in zip(block, self._rows, strict=True):
            row[:width] = values[first:end]
        sums = self._run(addresses(tuple(block)), LANES, out)
        self._out[first:end] = out[:width]
        sums[2] -= LANES - width  # zeros lie within the kept range of zeros
        return sums

    def _run(self, rows: NDArray[np.int64], width: int, out: Tensor) -> NDArray[np.float64]:
        sums = np.zeros((STATISTICS, self._n, LANES))
        memory, start = scratch(self._scratch_floats)
        self._kernel(rows.ctypes.data, 0, width, out.data_ptr(), start, sums.ctypes.data)
        del memory  # it had to live until here
        total: NDArray[np.float64] = sums.sum(axis=2)
        return total
