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
from pliska.aggregation.engine.report_kernel import Figure, report_function
from pliska.aggregation.engine.tile_sort import ARGUMENTS, tiling

ROWS_AT_ONCE = 16
"""Rows of one call: a kernel for each number of them has to be compiled."""


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
    if len(rows) > ROWS_AT_ONCE:
        parts = [rows[i : i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE)]
        return np.concatenate([_sums(target, part, columns, figure, vector) for part in parts])
    kernel = _kernel(target, len(rows), rows[0].dtype, figure)

    def work(block: Block) -> None:
        kernel(block.rows, block.start, block.stop, block.vector, block.scratch, block.sums)

    total = over_blocks(rows, columns, Needs((len(rows), LANES), 0), work, vector)
    summed: NDArray[np.float64] = total.sum(axis=1)
    return summed


@lru_cache(maxsize=256)
def _kernel(target: Host, n: int, dtype: torch.dtype, figure: Figure) -> Kernel:
    function = report_function("look", n, target.elements[dtype], tiling(target), figure)
    return compiled(target, "look", function.text(), tuple(ARGUMENTS.values()))
