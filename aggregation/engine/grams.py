"""Inner products of rows by the compiled kernel. `distances` and `running_gram` call this."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import gram_kernel
from pliska.aggregation.engine.blocks import LANES, Needs, over_blocks, span_sums
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.gram_kernel import GramTiling, gram_tiling
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.threads import SPAN_COLUMNS

KEPT_PLACES_MAX = 64 * 64
"""Places of so many products are kept from call to call; those of many rows would take megabytes
and are made for one row after the other."""


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
    plan = _Plan.of(target, len(rows), fresh, centre)
    kernel, among = _kernel(target, rows[0].dtype), plan.among(rows)
    return plan.products(over_blocks(target, kernel, among, columns, plan.needs))


def span_products(
    target: Host, rows: Sequence[Tensor], fresh: int, columns: slice, centre: Tensor | None
) -> list[Products]:
    """Return what `products` does for each `SPAN_COLUMNS` of the columns, in their order.

    Added up they are the same bytes however the columns are divided among
    calls, if each begins at a multiple of `SPAN_COLUMNS`.
    """
    plan = _Plan.of(target, len(rows), fresh, centre)
    kernel, among = _kernel(target, rows[0].dtype), plan.among(rows)
    sums = span_sums(target, kernel, among, columns, plan.needs, SPAN_COLUMNS)
    return [plan.products(each) for each in sums]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the kernel is to do with so many rows, and what its sums mean."""

    n: int
    fresh: int
    centre: Tensor | None
    tiles: "_Tiles"

    @classmethod
    def of(cls, target: Host, n: int, fresh: int, centre: Tensor | None) -> "_Plan":
        tiling = gram_tiling(target.lanes, target.registers)
        numbered = _kept_tiles if n * fresh <= KEPT_PLACES_MAX else _Tiles.of
        return cls(n, fresh, centre, numbered(tiling, n, fresh))

    @property
    def needs(self) -> Needs:
        tiling = self.tiles.tiling
        return Needs(
            sums=(self.n * LANES + self.tiles.count * tiling.tile_sums,),
            scratch_floats=tiling.packed_floats(self.n),
            pointers=tiling.rows_tiled(self.n),
            given=(self.n, self.fresh, -1 if self.centre is None else self.n),
        )

    def among(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        return rows if self.centre is None else [*rows, self.centre]

    def products(self, sums: NDArray[np.float64]) -> Products:
        squares = self.n * LANES
        lengths = sums[:squares].reshape(self.n, LANES).sum(axis=1)
        found = sums[squares:]
        if self.n * self.fresh <= KEPT_PLACES_MAX:
            return Products(found[self.tiles.places], lengths)
        gram = np.empty((self.fresh, self.n))
        for row in range(self.fresh):
            gram[row] = found[self.tiles.places_of(row)]
        return Products(gram, lengths)


@dataclass(frozen=True, eq=False)
class _Tiles:
    """Where among the sums of tiles the products of the first `fresh` rows with all n are.

    Attributes:
        count: How many tiles there are.
        numbers: Which one each is, int [rows of tiles, columns of tiles].
    """

    tiling: GramTiling
    n: int
    fresh: int
    count: int
    numbers: NDArray[np.intp]

    @classmethod
    def of(cls, tiling: GramTiling, n: int, fresh: int) -> "_Tiles":
        tiles = tiling.tiles(n, fresh)
        numbers = np.zeros((-(-n // tiling.height), -(-n // tiling.breadth)), np.intp)
        for number, (row, column) in enumerate(tiles):
            numbers[row // tiling.height, column // tiling.breadth] = number
        return cls(tiling, n, fresh, len(tiles), numbers)

    def places_of(self, row: int) -> NDArray[np.intp]:
        """Return where a row's products are, int [n]: left of the diagonal as right of it."""
        height, breadth, columns = self.tiling.height, self.tiling.breadth, np.arange(self.n)
        left, right = np.minimum(row, columns), np.maximum(row, columns)
        first = self.numbers[left // height, right // breadth] * self.tiling.tile_sums
        places: NDArray[np.intp] = first + left % height * breadth + right % breadth
        return places

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Those of all rows, int [fresh, n]."""
        return np.stack([self.places_of(row) for row in range(self.fresh)])


_kept_tiles = lru_cache(maxsize=64)(_Tiles.of)


@lru_cache(maxsize=8)
def _kernel(target: Host, dtype: torch.dtype) -> Kernel:
    assembly = gram_kernel.gram_assembly(
        "gram", target.elements[dtype], gram_tiling(target.lanes, target.registers)
    )
    return compiled(target, "gram", assembly, tuple(ARGUMENTS.values()))
