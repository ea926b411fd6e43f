"""The mean of the values nearest the median, in each coordinate: one kernel for several rules."""

import torch
from torch import Tensor

from pliska.aggregation.column_blocks import reduce_columns
from pliska.aggregation.order_statistics import BandMean, band_mean, nearest_mean
from pliska.aggregation.rows import Rows


def near_median_mean(rows: Rows, keep: int) -> BandMean:
    """Average the `keep` values nearest the median, per coordinate.

    Of values equally near, those of earlier rows are taken. The border is the
    rank `keep` of the deviations, so no column is sorted with its indices.
    Cost O(n log^2 n) comparisons per coordinate; deviations are in float64:
    two values of float32 that differ in the last bit must not tie.

    Args:
        rows: [n, d].
        keep: How many to average, 1 to n.
    """
    if keep == rows.n:
        return band_mean(rows, range(rows.n))
    made = nearest_mean(rows, keep)
    return reduce_columns(rows, lambda block: _nearest(block, keep)) if made is None else made


def _nearest(block: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    n = len(block)
    median = _ranks(block, range((n - 1) // 2, n // 2 + 1))
    deviations = (block - median).abs()
    border = _ranks(deviations, range(keep - 1, keep))
    nearer = deviations < border
    room = keep - nearer.sum(dim=0)
    total = torch.where(nearer, block, 0.0).sum(dim=0)
    kept = nearer.sum(dim=1)
    for i in range(n):
        tied = (deviations[i] == border) & (room > 0)
        room -= tied.long()
        total += torch.where(tied, block[i], 0.0)
        kept[i] += tied.sum()
    return total / keep, kept


def _ranks(block: Tensor, band: range) -> Tensor:
    """Return the mean of these ranks in each column of the block."""
    return band_mean(Rows(tuple(block), 0), band).vector
