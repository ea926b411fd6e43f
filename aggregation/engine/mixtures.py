"""Coordinate-wise means of mixed rows, mixed and averaged while they are in the cache.

`order_statistics` calls this for what pre-aggregators leave behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import band_kernel, bands, mix_kernel
from pliska.aggregation.engine.blocks import LANES, Block, over_blocks, scratch, written
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.mix_kernel import OUTPUTS_AT_ONCE, ROWS_AT_ONCE, SUBSETS
from pliska.aggregation.engine.networks import Selection

PIECE_ELEMENTS = 1 << 17
"""Values mixed at once: 512 KiB, which a core's own cache holds beside as much of the rows."""

PADDING = 16
"""Extra float32 in a mixed row: rows of equal size would all fall into the same cache sets."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Means, or multiples of them, of sets of rows.

    Attributes:
        codes: One bit for each row of each group of `ROWS_AT_ONCE`, int64 [m, groups].
        scales: What each sum is multiplied by, float64 [m].
        n: Rows.
    """

    codes: NDArray[np.int64]
    scales: NDArray[np.float64]
    n: int

    @classmethod
    def of(cls, matrix: NDArray[np.float64]) -> "Mixture | None":
        """Read a matrix [m, n]; None if a row of it has different weights."""
        m, n = matrix.shape
        scales = matrix.max(axis=1)
        members = matrix != 0
        if not (matrix[members] == np.broadcast_to(scales[:, None], matrix.shape)[members]).all():
            return None
        padded = np.zeros((m, -(-n // ROWS_AT_ONCE) * ROWS_AT_ONCE), np.int64)
        padded[:, :n] = members
        bits = padded.reshape(m, -1, ROWS_AT_ONCE) << np.arange(ROWS_AT_ONCE)
        return cls(np.ascontiguousarray(bits.sum(axis=2)), scales, n)


@dataclass(frozen=True, slots=True)
class MixedSums:
    """Sums over columns.

    Attributes:
        kept: Columns in which each mixed row lies within the kept range, float64 [m].
        distances: Squared distance of each unmixed row to the result, float64 [n].
    """

    kept: NDArray[np.float64]
    distances: NDArray[np.float64]


def select_mean(
    target: Host,
    rows: Sequence[Tensor],
    mixture: Mixture,
    selection: Selection,
    columns: slice,
    out: Tensor,
) -> MixedSums:
    """Write the mean of the selected values of each column of the mixed rows to `out`.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: n finite tensors [d], n at most `bands.ROWS_MAX`.
        mixture: Of at most `bands.ROWS_MAX` outputs.
        selection: Among the m values of a column.
        columns: Which; start and stop given.
        out: float32 [d], contiguous; only `columns` are written.
    """
    m = len(mixture.scales)
    work = _Work(target, rows[0].dtype, mixture, selection)
    parts = over_blocks(rows, columns, lambda block: work.block(block, out))
    total = np.sum(parts, axis=0) if parts else np.zeros(m + mixture.n)
    return MixedSums(total[:m], total[m:])


class _Work:
    """One call's kernels and numbers, shared by its threads."""

    def __init__(
        self, target: Host, dtype: torch.dtype, mixture: Mixture, selection: Selection
    ) -> None:
        self._mixture = mixture
        self._nbytes = dtype.itemsize
        groups = mixture.codes.shape[1]
        self._mix = _mix_kernel(target, dtype, groups)
        self._outputs = -(-len(mixture.scales) // OUTPUTS_AT_ONCE) * OUTPUTS_AT_ONCE
        self._places = np.zeros((self._outputs, groups), np.int64)
        self._places[: len(mixture.codes)] = mixture.codes
        self._places += np.arange(groups) * SUBSETS
        self._places *= target.lanes
        self._scales = np.zeros(self._outputs)
        self._scales[: len(mixture.scales)] = mixture.scales
        self._average = bands.kernel_for(target, selection, torch.float32)
        self._look = bands.report_kernel_for(target, mixture.n, dtype)
        self._table_floats = mix_kernel.table_floats(groups, target.lanes)
        self._scratch_floats = band_kernel.scratch_floats(selection.n, bands.tiling(target))

    def block(self, block: Block, out: Tensor) -> NDArray[np.float64]:
        """Work on one block, piece by piece."""
        m, n = len(self._mixture.scales), self._mixture.n
        piece = PIECE_ELEMENTS // max(m, n) // LANES * LANES
        stride = piece + PADDING
        mixed_sums = np.zeros((band_kernel.STATISTICS, m, LANES))
        row_sums = np.zeros((band_kernel.STATISTICS, n, LANES))
        with (
            scratch(self._outputs * stride) as mixed,
            scratch(self._table_floats) as table,
            scratch(self._scratch_floats) as space,
            written(out, block) as result,
        ):
            places = mixed + 4 * stride * np.arange(m, dtype=np.int64)
            for start in range(0, block.width, piece):
                width = min(piece, block.width - start)
                rows = block.addresses + start * self._nbytes
                here = result + 4 * start
                self._mix_piece(rows, width, table, mixed, stride)
                self._average(places.ctypes.data, 0, width, here, space, mixed_sums.ctypes.data)
                self._look(rows.ctypes.data, 0, width, here, space, row_sums.ctypes.data)
        # Zeros that fill up the block lie within the kept range of zeros.
        kept = mixed_sums[2].sum(axis=1) - (block.width - block.used)
        return np.concatenate([kept, row_sums[0].sum(axis=1)])

    def _mix_piece(
        self, rows: NDArray[np.int64], width: int, table: int, mixed: int, stride: int
    ) -> None:
        pointers = np.append(rows, np.repeat(rows[:1], -len(rows) % ROWS_AT_ONCE))
        self._mix(
            pointers.ctypes.data,
            self._places.ctypes.data,
            self._scales.ctypes.data,
            self._outputs,
            width,
            table,
            mixed,
            stride,
        )


@lru_cache(maxsize=64)
def _mix_kernel(target: Host, dtype: torch.dtype, groups: int) -> Kernel:
    assembly = mix_kernel.mix_assembly("mix", target.elements[dtype], target.lanes, groups)
    return compiled(target, "mix", assembly, tuple(mix_kernel.ARGUMENTS.values()))
