"""Squared lengths of rows, and their squared distances to a vector, by the compiled kernel.

`statistics` and `order_statistics` ask here first.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine.blocks import LANES, Block, Needs, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.report_kernel import REPORT_ARGUMENTS, Figure, report_function
from pliska.aggregation.engine.tile_sort import tiling


def lengths(target: Host, rows: Sequence[Tensor], columns: slice) -> NDArray[np.float64]:
    """Return the sum of squares of each row over these columns, float64 [n].

    Squares are formed in float32 and a few of them added there. Not finite for
    a row that is not.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: n tensors [d].
        columns: Which; start and stop given.
    """
    return _sums(target, rows, columns, Figure.LENGTH, None)


def distances(
    target: Host, rows: Sequence[Tensor], columns: slice, vector: Tensor
) -> NDArray[np.float64]:
    """Return the squared distance of each row to `vector` [d], formed like `lengths`.

    Args:
        target: As there.
        rows: As there.
        columns: As there.
        vector: float32 [d], contiguous.
    """
    return _sums(target, rows, columns, Figure.DISTANCE, vector)


def _sums(
    target: Host, rows: Sequence[Tensor], columns: slice, figure: Figure, vector: Tensor | None
) -> NDArray[np.float64]:
    layout = tiling(target)
    kernel = _kernel(target, rows[0].dtype, figure)
    n = -(-len(rows) // layout.rows_at_once) * layout.rows_at_once

    def work(block: Block) -> None:
        kernel(block.rows, block.start, block.stop, block.vector, block.scratch, block.sums, n)

    total = over_blocks(rows, columns, Needs((n, LANES), 0, pointers=n), work, vector)
    summed: NDArray[np.float64] = total[: len(rows)].sum(axis=1)
    return summed


@lru_cache(maxsize=16)
def _kernel(target: Host, dtype: torch.dtype, figure: Figure) -> Kernel:
    function = report_function("look", target.elements[dtype], tiling(target), figure)
    return compiled(target, "look", function.text(), tuple(REPORT_ARGUMENTS.values()))
