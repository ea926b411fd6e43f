"""Majority votes on the sign of each column, by the compiled kernel.

`order_statistics` asks here first.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from pliska.aggregation.engine.blocks import LANES, Needs, blank_columns, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.report_kernel import FIGURES, Figure
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.statistics import Sums
from pliska.aggregation.engine.tile_sort import tiling
from pliska.aggregation.engine.vote_kernel import BOUNDS, vote_assembly


def majority(target: Host, rows: Sequence[Tensor], columns: slice, out: Tensor) -> Sums:
    """Write the sign of the sum of the signs of each column to `out`.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: n tensors [d]. If a value is not finite, `lengths` tells.
        columns: Which; start and stop given.
        out: float32 [d], contiguous; only `columns` are written.

    Returns:
        Sums over `columns`; `kept` counts where a row has the sign of the result.
    """
    layout, n = tiling(target), len(rows)
    counted = layout.counted(n)
    needs = Needs(
        (FIGURES, counted, LANES), BOUNDS * layout.stride, pointers=counted, given=(n, counted)
    )
    total = over_blocks(target, _kernel(target, rows[0].dtype), rows, columns, needs, out)
    sums = total[:, :n].sum(axis=2)
    sums[Figure.KEPT] -= blank_columns(columns)
    return Sums(*sums)


@lru_cache(maxsize=8)
def _kernel(target: Host, dtype: torch.dtype) -> Kernel:
    assembly = vote_assembly("vote", target.elements[dtype], tiling(target))
    return compiled(target, "vote", assembly, tuple(ARGUMENTS.values()))
