"""Coordinate-wise means by the compiled kernel: whether, which, and what it found out.

`order_statistics` asks here first and does the work with torch where this
cannot or need not.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import band_kernel
from pliska.aggregation.engine.band_kernel import STATISTICS, Tiling
from pliska.aggregation.engine.blocks import LANES, Block, over_blocks, scratch, written
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.networks import Selection
from pliska.aggregation.engine.statistics import Sums

ROWS_MAX = 64
"""More rows make networks that take long to compile."""

TILE_COLUMNS = 256


def select_mean(
    target: Host, rows: Sequence[Tensor], selection: Selection, columns: slice, out: Tensor
) -> Sums:
    """Write the mean of the selected values of each column to `out`.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: At most `ROWS_MAX` tensors [d]. If a value is not finite,
            `lengths` tells, and `out` is undefined.
        selection: What is averaged.
        columns: Which; start and stop given.
        out: float32 [d], contiguous; only `columns` are written.

    Returns:
        Sums over `columns`.
    """
    kernel = kernel_for(target, selection, rows[0].dtype)
    scratch_floats = band_kernel.scratch_floats(selection.n, tiling(target))

    def work(block: Block) -> NDArray[np.float64]:
        sums = np.zeros((STATISTICS, selection.n, LANES))
        with scratch(scratch_floats) as space, written(out, block) as result:
            kernel(block.addresses.ctypes.data, 0, block.width, result, space, sums.ctypes.data)
        total: NDArray[np.float64] = sums.sum(axis=2)
        total[2] -= block.width - block.used  # a zero lies within the kept range of zeros
        return total

    parts = over_blocks(rows, columns, work)
    total = np.sum(parts, axis=0) if parts else np.zeros((STATISTICS, selection.n))
    if selection.is_whole:
        total[2] = columns.stop - columns.start
    return Sums(*total)


@lru_cache(maxsize=256)
def kernel_for(target: Host, selection: Selection, dtype: torch.dtype) -> Kernel:
    """Return the kernel that averages `selection` of rows of `dtype` (see `band_assembly`)."""
    assembly = band_kernel.band_assembly("band", selection, target.elements[dtype], tiling(target))
    return compiled(target, "band", assembly, tuple(band_kernel.ARGUMENTS.values()))


@lru_cache(maxsize=256)
def report_kernel_for(target: Host, n: int, dtype: torch.dtype) -> Kernel:
    """Return the kernel that compares n rows of `dtype` with a result (see `report_assembly`)."""
    assembly = band_kernel.report_assembly("report", n, target.elements[dtype], tiling(target))
    return compiled(target, "report", assembly, tuple(band_kernel.ARGUMENTS.values()))


def tiling(target: Host) -> Tiling:
    """Return the layout of these kernels on a CPU."""
    return Tiling(target.lanes, TILE_COLUMNS, rows_at_once=4 if target.registers > 16 else 2)
