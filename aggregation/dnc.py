"""Divide and conquer: drop what stands out along the direction of largest spread, in samples."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pliska.aggregation.aggregator import Rule
from pliska.aggregation.errors import ParameterError
from pliska.aggregation.parameters import require_count, require_positive
from pliska.aggregation.points import Choice, Combination, Points, mean_of
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class DnC(Rule):
    """Mean of the rows that no round of spectral filtering dropped.

    Repeat `iterations` times: draw up to `columns` coordinates by lot, centre
    the rows there, and let v be their top right singular vector; drop the
    ceil(c f) rows of largest <x_i - mean, v>^2, the later worker first among
    equals. The aggregate is the mean of the rows that were never dropped. The
    lots are drawn from the round's `seed`, so pass a new one in each round.

    Source: Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing
    model poisoning attacks and defenses for federated learning", NDSS 2021,
    Algorithm 2. Bound n >= 2f + 1 and n >= iterations * ceil(c f) + 1, without
    which nobody might be left. It bears lies that stand out one by one; a huge
    one sets the direction alone and hides another, so cap lengths before it
    (`ARC() | DnC(f=2)`). Cost O(n^2 columns) an iteration, one read of
    the rows kept, and O(n^2 d) for the report. No deviation. The report's margin
    is 1 - the share of iterations that dropped the row, or below 0 for dropped
    rows.

    Attributes:
        iterations: Samples, from 1; the paper uses 1 and more.
        columns: Coordinates in a sample; the paper uses 10000.
        c: Rows to drop in units of f, at least 1.
    """

    name: ClassVar[str] = "dnc"

    iterations: int = 1
    columns: int = 10_000
    c: float = 1.0

    def __post_init__(self) -> None:
        require_count("iterations", self.iterations, 1)
        require_count("columns", self.columns, 1)
        require_positive("c", self.c)
        if self.c < 1:
            raise ParameterError(f"c must be at least 1, not {self.c!r}: all f must be dropped")
        super().__post_init__()

    @property
    def bound(self) -> str:
        """See the class."""
        return f"n >= 2f + 1 and n >= {self.iterations} ceil({self.c:g} f) + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest, and somebody must be left."""
        return max(2 * f, self.iterations * math.ceil(self.c * f)) + 1

    def combine(self, points: Points, setting: Setting) -> Combination:
        """Filter in samples and average who is left."""
        n, drops = points.n, math.ceil(self.c * setting.f)
        generator = torch.Generator().manual_seed(setting.seed)
        dropped = [0] * n
        for _ in range(self.iterations):
            lot = torch.randperm(points.rows.whole_measured, generator=generator)[: self.columns]
            outlying = outlyingness(points.columns(lot.sort().values))
            ranking = sorted(range(n), key=lambda i: (outlying[i], i))
            for row in ranking[n - drops :]:
                dropped[row] += 1
        left = [i for i in range(n) if not dropped[i]]
        return points.combine(
            Choice(
                weights=mean_of(left, n),
                margins=[1.0 if not count else -count / self.iterations for count in dropped],
                reasons=[f"dropped in {count} of {self.iterations} samples" for count in dropped],
            )
        )


def outlyingness(sample: Tensor) -> list[float]:
    """Return each row's squared projection on the direction of largest spread.

    From the inner products of the centred rows, whose top eigenvector holds the
    projections, so that the cost is linear in the sample.

    Args:
        sample: float64 [n, k]; not changed.
    """
    centred = sample - sample[0]
    centred = centred - centred.mean(dim=0)
    values, vectors = torch.linalg.eigh(centred @ centred.T)
    projections: list[float] = (values[-1].clamp(min=0) * vectors[:, -1].square()).tolist()
    return projections
