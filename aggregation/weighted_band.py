"""The mean of a band of voting mass, in each coordinate: trimming and median by mass.

With every mass 1 the bands of mass are those of ranks, and `order_statistics`
forms them faster; this is for masses that differ.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from pliska.aggregation.column_blocks import reduce_columns
from pliska.aggregation.engine import masses as engine
from pliska.aggregation.engine.statistics import Sums, repaired
from pliska.aggregation.order_statistics import BandMean, distances_to, reduced, target_for
from pliska.aggregation.rows import Rows

ROUNDING = 1e-12
"""Relative error that a sum of masses may have when it is compared with half of all."""


def mass_trimmed_mean(rows: Rows, masses: Sequence[float], trimmed: float) -> BandMean:
    """Average, per coordinate, the values between two quantiles of mass.

    The values of a column are laid side by side in their order, each as wide as
    its mass; `trimmed` is cut off at either end, through a value if need be,
    and what is left is averaged by width.

    Args:
        rows: [n, d].
        masses: Positive, one per row.
        trimmed: Mass to cut at either end, below half of all.
    """
    total, target = math.fsum(masses), target_for(rows, rows.n, engine.ROWS_MAX)
    if target is not None and not trimmed:
        vector = rows.weighted_sum([mass / total for mass in masses])
        kept = torch.tensor(masses, dtype=torch.float64) * rows.whole_d
        return BandMean(vector, kept, distances_to(rows, vector))
    limits = trimmed, total - trimmed
    if target is not None:
        return _compiled(rows, partial(engine.trimmed_mean, target, rows.tensors, masses, limits))

    def reduction(block: Tensor) -> tuple[Tensor, Tensor]:
        mass = block.new_tensor(masses)
        order = block.argsort(dim=0, stable=True)
        upper = mass[order].cumsum(dim=0)
        lower = upper - mass[order]
        inside = (upper.clamp(max=limits[1]) - lower.clamp(min=limits[0])).clamp(min=0)
        width = torch.zeros_like(inside).scatter_(0, order, inside)
        return (block * width).sum(dim=0) / width.sum(dim=0), width.sum(dim=1)

    return reduce_columns(rows, reduction)


def mass_median(rows: Rows, masses: Sequence[float]) -> BandMean:
    """Return, per coordinate, the value at half of the mass.

    Where half of the mass falls between two values, it is their mean.

    Args:
        rows: [n, d].
        masses: Positive, one per row.
    """
    half, target = math.fsum(masses) / 2, target_for(rows, rows.n, engine.ROWS_MAX)
    limits = half * (1 - ROUNDING), half * (1 + ROUNDING)
    if target is not None:
        return _compiled(rows, partial(engine.median, target, rows.tensors, masses, limits))

    def reduction(block: Tensor) -> tuple[Tensor, Tensor]:
        mass = block.new_tensor(masses)
        order = block.argsort(dim=0, stable=True)
        values = block.gather(0, order)
        upper = mass[order].cumsum(dim=0)
        low = values.gather(0, (upper < limits[0]).sum(dim=0, keepdim=True))
        high = values.gather(0, (upper <= limits[1]).sum(dim=0, keepdim=True))
        return (low + high)[0] / 2, ((block >= low) & (block <= high)).sum(dim=1)

    return reduce_columns(rows, reduction)


def _compiled(rows: Rows, reduce: Callable[[slice, Tensor], Sums]) -> BandMean:
    """Reduce by a kernel, given columns and where to write."""

    def repair(columns: slice, vector: Tensor) -> Tensor:
        return repaired(reduce(columns, vector), rows.tensors, vector, columns).stacked

    return reduced(rows, repair)
