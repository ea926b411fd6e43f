"""Bucketing: means of a few rows drawn by lot take the rows' place."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pliska.aggregation.parameters import require_count
from pliska.aggregation.points import Mixture, Points
from pliska.aggregation.preaggregation import PreAggregator
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class Bucketing(PreAggregator):
    """Deal the rows by lot into ceil(n / s) buckets of s; the rule sees the buckets' means.

    The rule must bear the same f among fewer points, since each liar may spoil
    another bucket; `check` counts with that. The lot is a permutation drawn from
    the round's `seed`: pass a new one in each round. The last bucket may be
    smaller.

    Source: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous
    datasets via bucketing", ICLR 2022, Algorithm 1. Bound: the rule's own, on
    ceil(n / s). Cost O(n): no distances of its own. No deviation.

    Attributes:
        s: Rows in a bucket, from 1; the paper uses 2.
    """

    name: ClassVar[str] = "bucketing"

    s: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("s", self.s, 1)

    @property
    def bound(self) -> str:
        """What is left for the rule."""
        return f"that of ceil(n / {self.s}) buckets"

    def rows_least(self, f: int, points: int) -> int:
        """The smallest n that fills so many buckets, the last with one row."""
        del f
        return self.s * (points - 1) + 1

    def mix(self, points: Points, setting: Setting) -> Mixture:
        """Return the map to the buckets' means."""
        n = points.n
        generator = torch.Generator().manual_seed(setting.seed)
        lot = torch.randperm(n, generator=generator).tolist()
        buckets = [lot[start : start + self.s] for start in range(0, n, self.s)]
        matrix = torch.zeros(len(buckets), n + len(points.landmarks), dtype=torch.float64)
        places = [0] * n
        for bucket, members in enumerate(buckets):
            matrix[bucket, members] = 1 / len(members)
            for member in members:
                places[member] = bucket
        return Mixture(matrix, places)
