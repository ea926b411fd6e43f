"""Smallest-maximum-eigenvalue averaging: the mean of the n - f rows that spread least."""

from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import ClassVar

import torch
from torch import Tensor

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.errors import SearchLimitError
from pliska.aggregation.faults import faults_among
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import Choice, mean_of
from pliska.aggregation.setting import Setting

WORK_MAX = 500_000_000
"""Subsets times the cube of their size beyond which nothing is searched: about 4 s on a core.
n = 16, f = 5 has 6 million."""
BATCH_ELEMENTS = 2**20
"""Inner products in the subsets whose eigenvalues are found at once: 8 MiB."""


@dataclass(frozen=True, kw_only=True)
class SMEA(DistanceRule):
    """Mean of the subset of n - f rows whose covariance has the least largest eigenvalue.

    Exact: every subset is tried, on its (n-f) x (n-f) inner products, which
    have the covariance's non-zero eigenvalues. Of equal subsets the first in
    the order of workers is taken. What would take more than `WORK_MAX` is
    refused by `check`: take `MDA` or `CAF` there.

    Source: Allouah, Guerraoui, Gupta, Pinot, Stephan, "On the
    privacy-robustness-utility trilemma in distributed learning", ICML 2023,
    Section 4. Breakdown point (n-1)/2: bound n >= 2f + 1. Cost O(n^2 d) for the
    inner products, then C(n, f) (n-f)^3. Deviation: eigenvalues within 1e-9 of
    each other are equal. The report's margin is 1 for chosen rows, -1 for
    others.
    """

    name: ClassVar[str] = "smea"

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def check(self, n: int) -> None:
        """Raise as `Rule.check` does, and `SearchLimitError` for more than `WORK_MAX`.

        Each row that is refused later leaves fewer subsets.
        """
        super().check(n)
        f = faults_among(self.f, n, self.rows_needed)
        points = self.points_of(n, f)
        if comb(points, f) * (points - f) ** 3 > WORK_MAX:
            raise SearchLimitError(
                f"{self.title} with n={n} and f={f} would try {comb(points, f)} subsets of "
                f"{points - f}, which takes too long: take mda or caf, or lower f"
            )

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Average the subset of least top eigenvalue."""
        n, m = geometry.n, geometry.n - setting.f
        chosen = flattest(geometry.about(geometry.medoid)[:n, :n], m)
        kept = frozenset(chosen)
        return Choice(
            weights=mean_of(chosen, n),
            margins=[1.0 if i in kept else -1.0 for i in range(n)],
            reasons=[
                f"{'in' if i in kept else 'not in'} the subset of {m} that spreads least"
                for i in range(n)
            ],
        )


def flattest(gram: Tensor, m: int) -> tuple[int, ...]:
    """Return the m points whose covariance has the least top eigenvalue, the first of equals.

    Args:
        gram: Inner products about any point near the honest ones, float64 [n, n].
        m: 1 to n.
    """
    centring = torch.eye(m, dtype=torch.float64) - 1 / m
    subsets = combinations(range(len(gram)), m)
    best, least = tuple(range(m)), torch.inf
    while batch := list(islice(subsets, max(1, BATCH_ELEMENTS // m**2))):
        index = torch.tensor(batch)
        centred = centring @ gram[index[:, :, None], index[:, None, :]] @ centring
        tops = torch.linalg.eigvalsh(centred)[:, -1].clamp(min=0)
        lowest = float(tops.min())
        if lowest < least * (1 - 1e-9):
            first = int((tops <= lowest * (1 + 1e-9)).nonzero()[0])
            best, least = batch[first], float(tops[first])
    return best
