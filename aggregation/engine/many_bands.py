"""Coordinate-wise means of many rows by the compiled kernels whose network is a table.

`bands` writes the networks of few rows out, and calls this for more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine.assembly import Function
from pliska.aggregation.engine.blocks import LANES, Needs, blank_columns, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.many_band_kernel import many_band_function
from pliska.aggregation.engine.many_near_kernel import many_near_function
from pliska.aggregation.engine.merge_kernel import ROWS_BEFORE
from pliska.aggregation.engine.merge_sort import in_groups
from pliska.aggregation.engine.networks import (
    Nearest,
    Network,
    Selection,
    merging_network,
    ordered_merging_network,
)
from pliska.aggregation.engine.report_kernel import FIGURES, Figure
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.statistics import Sums
from pliska.aggregation.engine.tile_sort import Tiling, tiling

Way = Callable[[str, Element, Tiling, Sequence[Figure]], Function]

ROWS_MAX = 4096
"""More rows make tables that take seconds to work out."""

TILE_VALUES = 1 << 15
"""Values of a tile, where that leaves enough columns: 128 KiB, which the second cache holds."""

TILE_COLUMNS = (128, 64, 32)


def select_mean(
    target: Host,
    rows: Sequence[Tensor],
    selection: Selection | Nearest,
    columns: slice,
    out: Tensor,
) -> Sums:
    """Do what `bands.select_mean` does with more rows than a group has, and at most `ROWS_MAX`."""
    plan = ManyPlan.of(target, selection)
    kernel = _kernel(target, plan.way, rows[0].dtype, plan.tiling)
    needs = Needs(
        (FIGURES, plan.counted, LANES), plan.scratch_floats, plan.pointers, given=plan.given
    )
    total = over_blocks(target, kernel, rows, columns, needs, out)[:, : selection.n].sum(axis=2)
    total[Figure.KEPT, : selection.kept_of_equals] -= blank_columns(columns)
    return Sums(*total)


@dataclass(frozen=True, slots=True, eq=False)
class ManyPlan:
    """How the kernel is laid out for a selection; keep it until the kernel is done.

    Attributes:
        n: Rows.
        tiling: The widest tile that fits the cache.
        way: Writes the kernel, one for all selections of a kind.
        table: Of the network.
    """

    n: int
    tiling: Tiling
    way: Way
    table: "Table"

    @classmethod
    def of(cls, target: Host, selection: Selection | Nearest) -> "ManyPlan":
        """Work it out, or look it up."""
        n, plain = selection.n, tiling(target)
        width = next((w for w in TILE_COLUMNS if n * w <= TILE_VALUES), TILE_COLUMNS[-1])
        is_band = isinstance(selection, Selection)
        way: Way = many_band_function if is_band else many_near_function
        return cls(n, replace(plain, width=width), way, _table(selection))

    @property
    def counted(self) -> int:
        """Rows of a section of the kernel's sums."""
        return self.tiling.counted(self.n)

    @property
    def pointers(self) -> int:
        """How many pointers to rows the kernel follows; what it finds from n on is not used."""
        return in_groups(self.n)

    @property
    def scratch_floats(self) -> int:
        """float32 values of scratch memory that the kernel needs."""
        return (ROWS_BEFORE + self.pointers) * self.tiling.width

    @property
    def given(self) -> tuple[int, ...]:
        """What the kernel is given."""
        return self.n, self.counted, *self.table.given


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A network as a kernel reads it.

    Attributes:
        given: Numbers and addresses for the kernel.
        memory: What the addresses point into.
    """

    given: tuple[int, ...]
    memory: tuple[NDArray[np.int32], ...]


@lru_cache(maxsize=16)
def _table(selection: Selection | Nearest) -> Table:
    if isinstance(selection, Selection):
        network = merging_network(selection.n, selection.band)
        exchanges, kept = _exchanges(network), np.array(network.kept, np.int32)
        return Table((*_address(exchanges), *_address(kept)), (exchanges, kept))
    n, count = selection.n, selection.count
    runs = [(first, first + count - 1) for first in range(n - count + 1)]
    middle = (n - 1) // 2, n // 2
    ranks = sorted({*middle, *(rank for run in runs for rank in run)})
    network = ordered_merging_network(n, ranks)
    wires = dict(zip(ranks, network.kept, strict=True))
    ends = np.array([(wires[low], wires[high]) for low, high in runs], np.int32)
    exchanges = _exchanges(network)
    given = *_address(exchanges), count, *(wires[rank] for rank in middle), *_address(ends)
    return Table(given, (exchanges, ends))


def _exchanges(network: Network) -> NDArray[np.int32]:
    """Return the wires of the minimum and the maximum of each exchange, int32 [exchanges, 2]."""
    pairs = [(exchange.low, exchange.high) for exchange in network.merge]
    return np.array(pairs, np.int32).reshape(-1, 2)


def _address(table: NDArray[np.int32]) -> tuple[int, int]:
    return table.ctypes.data, len(table)


@lru_cache(maxsize=16)
def _kernel(target: Host, way: Way, dtype: torch.dtype, layout: Tiling) -> Kernel:
    text = way("merge", target.elements[dtype], layout, list(Figure)).text()
    return compiled(target, "merge", text, tuple(ARGUMENTS.values()))
