"""Weighted sums of rows by the compiled kernel. `rows` asks here first."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from pliska.aggregation.engine import sum_kernel
from pliska.aggregation.engine.blocks import Needs, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled, host_for
from pliska.aggregation.engine.results import RESULTS
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.sum_kernel import TILE_COLUMNS


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
    factors = np.array(weights, np.float64)
    if factors.tolist() == [1.0]:
        kernel, needs = _copy_kernel(target, rows[0].dtype), Needs((0,), 0)
    else:
        kernel = _sum_kernel(target, rows[0].dtype)
        needs = Needs((0,), 2 * TILE_COLUMNS, given=(len(factors), factors.ctypes.data))
    over_blocks(target, kernel, rows, slice(0, len(out)), needs, out)


def copied(vector: Tensor) -> Tensor:
    """Return a copy of `vector` [d], in memory that need not be touched for the first time."""
    target = host_for((vector,)) if vector.dtype == torch.float32 else None
    if target is None:
        return vector.clone()
    copy = RESULTS.vector(len(vector))
    weighted_sum(target, (vector,), [1.0], copy)
    return copy


@lru_cache(maxsize=8)
def _sum_kernel(target: Host, dtype: torch.dtype) -> Kernel:
    assembly = sum_kernel.sum_assembly("weighted_sum", target.elements[dtype], target.lanes)
    return compiled(target, "weighted_sum", assembly, tuple(ARGUMENTS.values()))


@lru_cache(maxsize=8)
def _copy_kernel(target: Host, dtype: torch.dtype) -> Kernel:
    assembly = sum_kernel.copy_assembly("copy", target.elements[dtype], target.lanes)
    return compiled(target, "copy", assembly, tuple(ARGUMENTS.values()))
