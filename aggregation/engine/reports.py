"""Squared lengths of rows, and their squared distances to a vector, by the compiled kernel.

`statistics` and `order_statistics` ask here first.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine.blocks import LANES, Needs, over_blocks, over_spans_at_once
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.report_kernel import Figure, report_function
from pliska.aggregation.engine.sharing import ARGUMENTS
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


def lengths_within(
    target: Host, rows: Sequence[Tensor], spans: Sequence[slice]
) -> NDArray[np.float64]:
    """Return what `lengths` does over a few short spans of columns, all of one width.

    Args:
        target: As there.
        rows: As there.
        spans: start and stop given.
    """
    kernel, needs = _kernel(target, rows[0].dtype, Figure.LENGTH), _needs(target, rows)
    total = over_spans_at_once(kernel, rows, spans, needs)
    if total is None:
        total = np.stack([lengths(target, rows, columns) for columns in spans], axis=1)
    summed: NDArray[np.float64] = total[: len(rows)].sum(axis=1)
    return summed


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
    kernel, needs = _kernel(target, rows[0].dtype, figure), _needs(target, rows)
    total = over_blocks(target, kernel, rows, columns, needs, vector)
    summed: NDArray[np.float64] = total[: len(rows)].sum(axis=1)
    return summed


def _needs(target: Host, rows: Sequence[Tensor]) -> Needs:
    n = tiling(target).counted(len(rows))
    return Needs((n, LANES), 0, pointers=n, given=(n,))


@lru_cache(maxsize=16)
def _kernel(target: Host, dtype: torch.dtype, figure: Figure) -> Kernel:
    function = report_function("look", target.elements[dtype], tiling(target), figure)
    return compiled(target, "look", function.text(), tuple(ARGUMENTS.values()))
