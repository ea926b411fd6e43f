"""The mean of the values nearest the median, in each coordinate: one kernel for several rules."""

import torch

from pliska.aggregation.order_statistics import BandMean, band_mean
from pliska.aggregation.rows import Rows


def near_median_mean(rows: Rows, keep: int) -> BandMean:
    """Average the `keep` values nearest the median, per coordinate.

    Of values equally near, those of earlier rows are taken. The border is the
    rank `keep` of the deviations, so no column is sorted with its indices.
    Cost O(n log^2 n) comparisons per coordinate, in float64: two columns of
    float32 that differ in the last bit must not tie.

    Args:
        rows: [n, d].
        keep: How many to average, 1 to n.
    """
    if keep == rows.n:
        return band_mean(rows, range(rows.n))
    vector = rows.tensors[0].new_empty(rows.d, dtype=rows.dtype)
    kept = torch.zeros(rows.n, dtype=torch.float64, device=vector.device)
    distances = torch.zeros_like(kept)
    middle = range((rows.n - 1) // 2, rows.n // 2 + 1)
    for columns in rows.spans(rows.d):
        block = rows.block(columns).to(torch.float64)
        median = band_mean(Rows(tuple(block), 0), middle).vector
        deviations = (block - median).abs()
        border = band_mean(Rows(tuple(deviations), 0), range(keep - 1, keep)).vector
        room = keep - (deviations < border).sum(dim=0)
        total = torch.zeros_like(median)
        for i, deviation in enumerate(deviations):
            tied = (deviation == border) & (room > 0)
            taken = tied | (deviation < border)
            room -= tied.long()
            total += torch.where(taken, block[i], 0.0)
            kept[i] += taken.sum()
        vector[columns] = total / keep
        measured = max(0, min(rows.measured - columns.start, block.shape[1]))
        gaps = block[:, :measured] - vector[columns][:measured].to(torch.float64)
        distances += gaps.square().sum(dim=1)
    return BandMean(vector, kept.tolist(), distances.tolist())
