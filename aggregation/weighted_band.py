"""The mean of a band of voting mass, in each coordinate: trimming and median by mass.

With every mass 1 the bands of mass are those of ranks, and `order_statistics`
forms them faster; this is for masses that differ.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pliska.aggregation.column_blocks import reduce_columns
from pliska.aggregation.order_statistics import BandMean
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

    def reduction(block: Tensor) -> tuple[Tensor, Tensor]:
        mass = block.new_tensor(masses)
        order = block.argsort(dim=0, stable=True)
        upper = mass[order].cumsum(dim=0)
        lower = upper - mass[order]
        end = mass.sum() - trimmed
        inside = (upper.clamp(max=end) - lower.clamp(min=trimmed)).clamp(min=0)
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

    def reduction(block: Tensor) -> tuple[Tensor, Tensor]:
        mass = block.new_tensor(masses)
        half = mass.sum() / 2
        order = block.argsort(dim=0, stable=True)
        values = block.gather(0, order)
        upper = mass[order].cumsum(dim=0)
        low = values.gather(0, (upper < half * (1 - ROUNDING)).sum(dim=0, keepdim=True))
        high = values.gather(0, (upper <= half * (1 + ROUNDING)).sum(dim=0, keepdim=True))
        return (low + high)[0] / 2, ((block >= low) & (block <= high)).sum(dim=1)

    return reduce_columns(rows, reduction)
