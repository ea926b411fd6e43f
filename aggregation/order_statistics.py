"""The mean of a band of the sorted values, in each coordinate.

Mean, median and trimmed mean differ only in which ranks they average. Columns
are sorted block by block with a comparator network of elementwise minima and
maxima, which is many times faster than a sort of short columns; the network is
pruned to the comparators that the band depends on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from pliska.aggregation.rows import Rows


@dataclass(frozen=True, slots=True)
class BandMean:
    """The mean of a band, and how the rows lie to it.

    Attributes:
        vector: [d], in the rows' arithmetic dtype.
        kept: Coordinates in which each row lies within the band, ties included.
        distances: Squared distance of each row to `vector`, measured columns only.
    """

    vector: Tensor
    kept: Sequence[float]
    distances: Sequence[float]


def band_mean(rows: Rows, band: range) -> BandMean:
    """Average the values whose rank is in `band`, per coordinate, in one pass over the rows.

    Cost O(n log^2 n) comparisons per coordinate; sums are in float64. The
    extremes are left out, never subtracted: the sum of all minus the extremes
    loses everything to one huge value.
    """
    vector = rows.tensors[0].new_empty(rows.d, dtype=rows.dtype)
    kept = torch.zeros(rows.n, dtype=torch.float64, device=vector.device)
    distances = torch.zeros_like(kept)
    for columns in rows.spans(rows.d):
        block = rows.block(columns)
        wires = sorted_rows(block, band) if len(band) < rows.n else list(block)
        low, high = wires[band.start], wires[band.stop - 1]
        if len(band) == rows.n:
            kept += block.shape[1]
        else:
            kept += ((block >= low) & (block <= high)).sum(dim=1)
        total = torch.zeros_like(low, dtype=torch.float64)
        for rank in band:
            total += wires[rank]
        vector[columns] = total / len(band)
        measured = max(0, min(rows.measured - columns.start, block.shape[1]))
        gap = block[:, :measured].to(torch.float64) - vector[columns][:measured]
        distances += gap.square().sum(dim=1)
    return BandMean(vector, kept.tolist(), distances.tolist())


def sorted_rows(block: Tensor, band: range) -> list[Tensor]:
    """Return rows whose entries at the ranks in `band` are those of the sorted columns.

    Args:
        block: [n, width], finite; not changed.
        band: Ranks that must be right; the other returned rows hold leftovers.
    """
    wires = list(block.clone())
    spare = torch.empty_like(block[0])
    for low, high in comparators(block.shape[0], band):
        torch.minimum(wires[low], wires[high], out=spare)
        torch.maximum(wires[low], wires[high], out=wires[high])
        wires[low], spare = spare, wires[low]
    return wires


@lru_cache(maxsize=256)
def comparators(n: int, band: range) -> tuple[tuple[int, int], ...]:
    """Return pairs of wires to compare and exchange, in order, that sort the ranks in `band`.

    Batcher's odd-even merge sort for any n (Batcher 1968; Knuth, The Art of
    Computer Programming 3, 5.2.2, Algorithm M), without the comparators that no
    rank in `band` depends on.
    """
    network: list[tuple[int, int]] = []
    top = 1 << max(0, (n - 1).bit_length() - 1)
    p = top
    while p > 0:
        q, r, distance = top, 0, p
        while True:
            network += [(i, i + distance) for i in range(n - distance) if i & p == r]
            if q == p:
                break
            distance, q, r = q - p, q // 2, p
        p //= 2
    needed = set(band)
    pruned = []
    for low, high in reversed(network):
        if low in needed or high in needed:
            pruned.append((low, high))
            needed |= {low, high}
    return tuple(reversed(pruned))
