"""Coordinate-wise means by sorting the columns: for GPUs without Triton, and nothing else."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pliska.aggregation.engine.networks import Selection
from pliska.aggregation.engine.statistics import DISTANCES, KEPT, LENGTHS

BLOCK_ELEMENTS = 1 << 26
"""Values sorted at once; a sort needs several times their memory."""


def select_mean(
    rows: Sequence[Tensor], selection: Selection, columns: slice, out: Tensor
) -> Tensor:
    """Write the mean of the selected values of each column to `out`, without waiting for it.

    Args:
        rows: n finite tensors [d], on any device.
        selection: What is averaged.
        columns: Which; start and stop given.
        out: [d] in the dtype of the arithmetic; only `columns` are written.

    Returns:
        What `statistics.Sums.stacked` is, on the device.
    """
    sums = torch.zeros((4, len(rows)), dtype=torch.float64, device=out.device)
    width = max(1, BLOCK_ELEMENTS // len(rows))
    for start in range(columns.start, columns.stop, width):
        end = min(start + width, columns.stop)
        block = torch.stack([row[start:end] for row in rows]).to(out.dtype)
        ordered = block.sort(dim=0).values
        kept = ordered[selection.band.start : selection.band.stop]
        out[start:end] = kept.mean(dim=0, dtype=torch.float64)
        inside = (block >= kept.amin(dim=0)) & (block <= kept.amax(dim=0))
        values = block.to(torch.float64)
        sums[DISTANCES] += (values - out[start:end]).square().sum(dim=1)
        sums[LENGTHS] += values.square().sum(dim=1)
        sums[KEPT] += inside.sum(dim=1)
    return sums
