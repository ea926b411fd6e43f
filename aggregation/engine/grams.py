"""Inner products of rows by the compiled kernel. `distances` and `running_gram` call this."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import gram_kernel
from pliska.aggregation.engine.blocks import LANES, Needs, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.gram_kernel import GramTiling, gram_tiling
from pliska.aggregation.engine.sharing import ARGUMENTS


@dataclass(frozen=True, slots=True)
class Products:
    """Inner products of the first rows with all rows.

    Products are added in float32 within a block of columns: they are not
    finite for values beyond 1e19, vanish for values below 1e-19, and are right
    to about 1e-7 / sqrt(blocks) of the lengths involved.

    Attributes:
        gram: Products of rows less the centre, float64 [fresh, n].
        lengths: Squares of the rows as they are, float64 [n].
    """

    gram: NDArray[np.float64]
    lengths: NDArray[np.float64]


def products(
    target: Host, rows: Sequence[Tensor], fresh: int, columns: slice, centre: Tensor | None
) -> Products:
    """Return the inner products of the first `fresh` rows with all.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: n tensors [d].
        fresh: 1 to n; n for the whole matrix, which is then symmetric to the bit.
        columns: Which; start and stop given.
        centre: Subtracted from each row, a tensor like them; None for nothing.
    """
    n = len(rows)
    tiling = gram_tiling(target.lanes, target.registers)
    kernel = _kernel(target, rows[0].dtype)
    order = tiling.tiles(n, fresh)
    squares = n * LANES
    needs = Needs(
        sums=(squares + len(order) * tiling.tile_sums,),
        scratch_floats=tiling.packed_floats(n),
        pointers=tiling.rows_tiled(n),
        given=(n, fresh, -1 if centre is None else n),
    )
    among = rows if centre is None else [*rows, centre]
    total = over_blocks(target, kernel, among, columns, needs)
    lengths, tiles = total[:squares], total[squares:].reshape(len(order), tiling.tile_sums)
    return Products(
        _assembled(tiles, order, tiling, n, fresh), lengths.reshape(n, LANES).sum(axis=1)
    )


def _assembled(
    tiles: NDArray[np.float64], order: list[tuple[int, int]], tiling: GramTiling, n: int, fresh: int
) -> NDArray[np.float64]:
    """Put the tiles together and mirror what lies right of the diagonal."""
    height, breadth = tiling.height, tiling.breadth
    side = tiling.rows_tiled(n)
    whole = np.zeros((side, side))
    for tile, (i, j) in zip(tiles, order, strict=True):
        whole[i : i + height, j : j + breadth] = tile[: height * breadth].reshape(height, breadth)
    upper = np.triu(whole)
    symmetric = upper + np.triu(whole, 1).T
    return symmetric[:fresh, :n]


@lru_cache(maxsize=8)
def _kernel(target: Host, dtype: torch.dtype) -> Kernel:
    assembly = gram_kernel.gram_assembly(
        "gram", target.elements[dtype], gram_tiling(target.lanes, target.registers)
    )
    return compiled(target, "gram", assembly, tuple(ARGUMENTS.values()))
