"""Coordinate-wise means of many rows by the compiled kernel whose network is a table.

`bands` writes the networks of few rows out, and calls this for more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine.blocks import LANES, Needs, blank_columns, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.merge_kernel import ENDS, merge_assembly
from pliska.aggregation.engine.merge_sort import GROUP_MAX
from pliska.aggregation.engine.networks import Selection, merging_network
from pliska.aggregation.engine.report_kernel import FIGURES, Figure
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.statistics import Sums
from pliska.aggregation.engine.tile_sort import Tiling, tiling

ROWS_MAX = 4096
"""More rows make tables that take seconds to work out."""

TILE_VALUES = 1 << 15
"""Values of a tile, where that leaves enough columns: 128 KiB, which the second cache holds."""

TILE_COLUMNS = (128, 64, 32)


def select_mean(
    target: Host, rows: Sequence[Tensor], selection: Selection, columns: slice, out: Tensor
) -> Sums:
    """Do what `bands.select_mean` does with more rows than it takes, and at most `ROWS_MAX`."""
    n, layout = selection.n, _layout(target, selection.n)
    counted = -(-n // layout.rows_at_once) * layout.rows_at_once
    wires = -(-n // GROUP_MAX) * GROUP_MAX
    table = _table(selection)
    needs = Needs(
        (FIGURES, counted, LANES),
        (ENDS + wires) * layout.width,
        pointers=wires,
        given=(n, counted, *table.words),
    )
    kernel = _kernel(target, rows[0].dtype, layout)
    total = over_blocks(target, kernel, rows, columns, needs, out)[:, :n].sum(axis=2)
    total[Figure.KEPT] -= blank_columns(columns)  # where all values are equal, and kept
    return Sums(*total)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """A network as the kernel reads it.

    Attributes:
        exchanges: Wires of the minimum and the maximum, int32 [exchanges, 2].
        kept: Wires of the band, int32.
    """

    exchanges: NDArray[np.int32]
    kept: NDArray[np.int32]

    @property
    def words(self) -> tuple[int, ...]:
        """Address and length of each part."""
        parts = self.exchanges, self.kept
        return tuple(word for part in parts for word in (part.ctypes.data, len(part)))


@lru_cache(maxsize=16)
def _table(selection: Selection) -> _Table:
    network = merging_network(selection.n, selection.band)
    pairs = [(exchange.low, exchange.high) for exchange in network.merge]
    return _Table(np.array(pairs, np.int32).reshape(-1, 2), np.array(network.kept, np.int32))


def _layout(target: Host, n: int) -> Tiling:
    """Return the widest tile that fits the cache."""
    width = next((w for w in TILE_COLUMNS if n * w <= TILE_VALUES), TILE_COLUMNS[-1])
    return replace(tiling(target), width=width)


@lru_cache(maxsize=16)
def _kernel(target: Host, dtype: torch.dtype, layout: Tiling) -> Kernel:
    assembly = merge_assembly("merge", target.elements[dtype], layout)
    return compiled(target, "merge", assembly, tuple(ARGUMENTS.values()))
