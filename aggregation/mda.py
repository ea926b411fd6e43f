"""Minimum-diameter averaging: the mean of the n - f rows that lie closest together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pliska.aggregation.cliques import first_clique
from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.errors import SearchLimitError
from pliska.aggregation.faults import faults_among
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import Choice, mean_of
from pliska.aggregation.setting import Setting

FAULTS_MAX = 32
"""More rows are not searched out: the hardest graphs that are known for it take 2 s at f = 36
and a minute at 45, and rows may be made to form one."""


@dataclass(frozen=True, kw_only=True)
class MDA(DistanceRule):
    """Mean of the subset of n - f rows with the least diameter (largest distance within it).

    Exact: the least diameter is found by bisection over the distances that
    occur, asking for each whether n - f rows are pairwise that near (see
    `cliques`). Of several such subsets the first in the order of workers is
    taken.

    Source: El Mhamdi, Guerraoui, Guirguis, Hoang, Rouault, "Genuinely
    distributed Byzantine machine learning", PODC 2020, Section 3 (after
    Rousseeuw 1985). Breakdown point (n-1)/2: bound n >= 2f + 1. Cost O(n^2 d)
    for the distances, then at most O(1.47^f n^2 log n), seldom near it; `check`
    refuses more than `FAULTS_MAX` faults. No deviation. The report's margin is
    1 - radius / diameter, with a row's radius its largest distance to the
    chosen ones: below 0 for the others.
    """

    name: ClassVar[str] = "mda"

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def check(self, n: int) -> None:
        """Raise as `Rule.check` does, and `SearchLimitError` for more than `FAULTS_MAX` faults."""
        super().check(n)
        f = faults_among(self.f, n, self.rows_needed)
        if f > FAULTS_MAX:
            raise SearchLimitError(
                f"{self.title} with n={n} searches out at most {FAULTS_MAX} rows, not f={f}: "
                "take caf or geometric-median, or lower f"
            )

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Average the subset of least diameter."""
        distances = geometry.between_rows
        chosen = tightest(distances, geometry.n - setting.f)
        radii = distances[:, chosen].max(dim=1).values.sqrt().tolist()
        diameter = max(radii[i] for i in chosen)
        return Choice(
            weights=mean_of(chosen, geometry.n),
            margins=[1 - radius / diameter if diameter > 0 else -radius for radius in radii],
            reasons=[
                f"at most {radius:.4g} from the chosen {len(chosen)}, whose diameter is "
                f"{diameter:.4g}"
                for radius in radii
            ],
        )


def tightest(distances: Tensor, m: int) -> list[int]:
    """Return the m points of least diameter, the lexicographically first of equals.

    Args:
        distances: Float64 [n, n], symmetric.
        m: 1 to n.
    """
    table: list[list[float]] = distances.tolist()
    levels = sorted({0.0, *(value for row in table for value in row)})
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if first_clique(_farther_than(table, levels[middle]), m) is None:
            low = middle + 1
        else:
            high = middle
    found = first_clique(_farther_than(table, levels[low]), m)
    if found is None:
        raise AssertionError("all points lie within the largest distance")
    return found


def _farther_than(table: Sequence[Sequence[float]], limit: float) -> list[int]:
    """Return for each point the bit mask of those farther away than `limit`."""
    return [sum(1 << j for j, value in enumerate(row) if value > limit) for row in table]
