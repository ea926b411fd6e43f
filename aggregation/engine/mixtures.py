"""Coordinate-wise means of mixed rows, mixed and averaged while they are in the cache.

`order_statistics` calls this for what pre-aggregators leave behind.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import bands, mix_kernel
from pliska.aggregation.engine.assembly import Function
from pliska.aggregation.engine.blocks import LANES, Needs, blank_columns, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.elements import FLOAT32
from pliska.aggregation.engine.many_bands import ManyPlan
from pliska.aggregation.engine.mix_kernel import ROWS_AT_ONCE, SUBSETS, MixTiling
from pliska.aggregation.engine.networks import Nearest, Selection
from pliska.aggregation.engine.report_kernel import FIGURES, Figure
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import Source, tiling

ROWS_MAX = 128
"""Rows, and means of them. More make kernels that take long to compile."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Sums of sets of rows, each multiplied by a number.

    Attributes:
        codes: One bit for each row of each group of `ROWS_AT_ONCE`, int64 [m, groups].
        scales: What each sum is multiplied by, float64 [m].
        n: Rows.
        centre: The row about which means are formed, so that the mean of rows
            equal to it is that row; None where they are no means, or of one
            row each.
    """

    codes: NDArray[np.int64]
    scales: NDArray[np.float64]
    n: int
    centre: int | None

    @classmethod
    def of(cls, matrix: NDArray[np.float64], centre: int = 0) -> "Mixture | None":
        """Read a matrix [m, n]; None if a row of it has different weights."""
        m, n = matrix.shape
        scales = matrix.max(axis=1)
        members = matrix != 0
        if not ((matrix == scales[:, None]) | ~members).all():
            return None
        padded = np.zeros((m, -(-n // ROWS_AT_ONCE) * ROWS_AT_ONCE), np.int64)
        padded[:, :n] = members
        bits = padded.reshape(m, -1, ROWS_AT_ONCE) << np.arange(ROWS_AT_ONCE)
        sizes = members.sum(axis=1)
        are_means = (abs(scales * sizes - 1.0) <= 1e-9).all() and sizes.max() > 1
        codes = np.ascontiguousarray(bits.sum(axis=2))
        return cls(codes, scales, n, centre if are_means else None)


@dataclass(frozen=True, slots=True)
class MixedSums:
    """Sums over columns.

    Attributes:
        kept: Columns in which each mixed row lies within the kept range, float64 [m].
        distances: Squared distance of each unmixed row to the result, float64 [n].
    """

    kept: NDArray[np.float64]
    distances: NDArray[np.float64]


def select_mean(
    target: Host,
    rows: Sequence[Tensor],
    mixture: Mixture,
    selection: Selection | Nearest,
    columns: slice,
    out: Tensor,
) -> MixedSums:
    """Write the mean of the selected values of each column of the mixed rows to `out`.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: n finite tensors [d], n at most `ROWS_MAX`.
        mixture: Of at most `ROWS_MAX` outputs, which are formed in float32.
        selection: Among the m values of a column, not all of them.
        columns: Which; start and stop given.
        out: float32 [d], contiguous; only `columns` are written.
    """
    layout = MixTiling(mixture.n, len(mixture.scales), tiling(target))
    reduction = _Reduction.of(target, selection)
    kernel = _kernel(target, rows[0].dtype, layout, selection)
    places, scales = _numbers(mixture, layout)
    centre = -1 if mixture.centre is None else mixture.centre
    own = layout.rows_looked_at, centre, places.ctypes.data, scales.ctypes.data
    needs = Needs(
        sums=(layout.row_sums + FIGURES * reduction.counted * LANES,),
        scratch_floats=layout.scratch_floats + reduction.scratch_floats,
        pointers=layout.rows_looked_at,
        given=(*own, *reduction.given),
    )
    sums = over_blocks(target, kernel, rows, columns, needs, out)
    of_rows, of_mixed = sums[: layout.row_sums], sums[layout.row_sums :]
    counted = of_mixed.reshape(FIGURES, reduction.counted, LANES)[Figure.KEPT]
    kept = counted[: layout.m].sum(axis=1)
    kept[: selection.kept_of_equals] -= blank_columns(columns)
    return MixedSums(kept, of_rows.reshape(-1, LANES).sum(axis=1)[: layout.n])


def _numbers(mixture: Mixture, layout: MixTiling) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return places and scales as the kernel takes them, for as many means as it forms."""
    codes = np.zeros((layout.outputs, layout.groups), np.int32)
    codes[: layout.m] = mixture.codes
    codes += np.arange(layout.groups, dtype=np.int32) * SUBSETS
    scales = np.zeros(layout.outputs, np.float32)
    scales[: layout.m] = mixture.scales
    return codes * layout.tiling.lanes, scales


@dataclass(frozen=True, slots=True, eq=False)
class _Reduction:
    """What averages the means of a tile.

    Attributes:
        way: Writes it as a kernel of this name.
        counted: Means that its sums have room for.
        scratch_floats: float32 values of scratch memory that it needs.
        given: What it is given.
        plan: Keeps what that points to.
    """

    way: Callable[[str], Function]
    counted: int
    scratch_floats: int
    given: Sequence[int] = ()
    plan: ManyPlan | None = None

    @classmethod
    def of(cls, target: Host, selection: Selection | Nearest) -> "_Reduction":
        m, layout, figures = selection.n, tiling(target), [Figure.KEPT]
        if m > bands.ROWS_MAX:
            plan = ManyPlan.of(target, selection)
            return cls(
                lambda name: plan.way(name, FLOAT32, plan.tiling, figures),
                plan.counted,
                plan.scratch_floats,
                plan.given,
                plan,
            )
        source = Source(FLOAT32, is_near=True)
        few = partial(
            bands.reduction, selection=selection, source=source, layout=layout, figures=figures
        )
        return cls(few, m, bands.scratch_floats(m, layout))


@lru_cache(maxsize=64)
def _kernel(
    target: Host, dtype: torch.dtype, layout: MixTiling, selection: Selection | Nearest
) -> Kernel:
    reduction = _Reduction.of(target, selection).way("reduce")
    assembly = mix_kernel.mixed_assembly("mixed", target.elements[dtype], layout, reduction)
    return compiled(target, "mixed", assembly, tuple(ARGUMENTS.values()))
