"""Walks over column blocks for rules that reduce each column by a formula of their own.

`order_statistics` has the fast kernels for bands of ranks; this is the plain
way for everything else that is coordinate-wise.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pliska.aggregation.order_statistics import BandMean
from pliska.aggregation.rows import Rows

Reduction = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From a block, float64 [n, width], to its values [width] and how much of each row was kept [n]."""


def reduce_columns(rows: Rows, reduction: Reduction) -> BandMean:
    """Reduce every column of the rows, block by block, in float64."""
    vector = rows.tensors[0].new_empty(rows.d, dtype=rows.dtype)
    kept = torch.zeros(rows.n, dtype=torch.float64, device=vector.device)
    distances = torch.zeros_like(kept)
    for columns in rows.spans(rows.d):
        block = rows.block(columns).to(torch.float64)
        values, share = reduction(block)
        vector[columns] = values
        kept += share
        measured = max(0, min(rows.measured - columns.start, block.shape[1]))
        gaps = block[:, :measured] - vector[columns][:measured].to(torch.float64)
        distances += gaps.square().sum(dim=1)
    kept, distances = rows.total(torch.stack([kept, distances]))
    return BandMean(vector, kept, distances)
