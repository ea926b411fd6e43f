"""Weighted sums of rows by the compiled kernel. `rows` asks here first."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from pliska.aggregation.engine import sum_kernel
from pliska.aggregation.engine.blocks import Block, Needs, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.sum_kernel import ROWS_AT_ONCE, TILE_COLUMNS


def weighted_sum(
    target: Host, rows: Sequence[Tensor], weights: Sequence[float], out: Tensor
) -> None:
    """Write the sum of weights[i] * rows[i] to `out`.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: At least one tensor [d]; all are read.
        weights: One per row.
        out: float32 [d], contiguous.
    """
    kernel = _kernel(target, rows[0].dtype)
    missing = -len(rows) % ROWS_AT_ONCE
    factors = np.array([*weights, *[0.0] * missing])
    needs = Needs((), 2 * TILE_COLUMNS, len(factors))

    def work(block: Block) -> None:
        kernel(
            block.rows,
            factors.ctypes.data,
            len(factors),
            block.start,
            block.stop,
            block.vector,
            block.scratch,
        )

    over_blocks(rows, slice(0, len(out)), needs, work, out)


@lru_cache(maxsize=8)
def _kernel(target: Host, dtype: torch.dtype) -> Kernel:
    assembly = sum_kernel.sum_assembly("weighted_sum", target.elements[dtype], target.lanes)
    return compiled(target, "weighted_sum", assembly, tuple(sum_kernel.ARGUMENTS.values()))
