"""Coordinate-wise means by the compiled kernel: whether, which, and what it found out.

`order_statistics` asks here first and does the work with torch where this
cannot or need not.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from pliska.aggregation.engine import many_bands
from pliska.aggregation.engine.assembly import Function
from pliska.aggregation.engine.band_kernel import ENDS, band_function
from pliska.aggregation.engine.blocks import LANES, Needs, blank_columns, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.near_kernel import near_function
from pliska.aggregation.engine.networks import Nearest, Selection
from pliska.aggregation.engine.report_kernel import FIGURES, Figure
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.statistics import Sums
from pliska.aggregation.engine.tile_sort import Source, Tiling, tiling

ROWS_MAX = 64
"""More rows make networks that take long to compile: what follows is `many_bands`."""


def select_mean(
    target: Host,
    rows: Sequence[Tensor],
    selection: Selection | Nearest,
    columns: slice,
    out: Tensor,
) -> Sums:
    """Write the mean of the selected values of each column to `out`.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: At most `many_bands.ROWS_MAX` tensors [d]. If a value is not finite,
            `lengths` tells, and `out` is undefined.
        selection: What is averaged.
        columns: Which; start and stop given.
        out: float32 [d], contiguous; only `columns` are written.

    Returns:
        Sums over `columns`.
    """
    if selection.n > ROWS_MAX:
        return many_bands.select_mean(target, rows, selection, columns, out)
    kernel = _reducing_kernel(target, selection, rows[0].dtype)
    needs = Needs((FIGURES, selection.n, LANES), scratch_floats(selection.n, tiling(target)))
    total = over_blocks(target, kernel, rows, columns, needs, out).sum(axis=2)
    total[Figure.KEPT, : selection.kept_of_equals] -= blank_columns(columns)
    if selection.is_whole:
        total[Figure.KEPT] = columns.stop - columns.start
    return Sums(*total)


def reduction(
    name: str,
    selection: Selection | Nearest,
    source: Source,
    layout: Tiling,
    figures: Sequence[Figure],
) -> Function:
    """Return the kernel that averages what is selected; see `sharing.ARGUMENTS`."""
    if isinstance(selection, Nearest):
        return near_function(name, selection.n, selection.count, source, layout, figures)
    return band_function(name, selection, source, layout, figures)


def scratch_floats(n: int, layout: Tiling) -> int:
    """Return the float32 values of scratch memory that a reduction of n rows needs."""
    return (n + ENDS) * layout.stride


@lru_cache(maxsize=256)
def _reducing_kernel(target: Host, selection: Selection | Nearest, dtype: torch.dtype) -> Kernel:
    source = Source(target.elements[dtype])
    function = reduction("reduce", selection, source, tiling(target), list(Figure))
    return compiled(target, "reduce", function.text(), tuple(ARGUMENTS.values()))
