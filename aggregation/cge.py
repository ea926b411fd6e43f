"""Comparative gradient elimination: the mean without the f longest rows."""

from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import ORIGIN, Choice, mean_of
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class CGE(DistanceRule):
    """Mean of the n - f rows of least length; of equally long ones the earlier worker's is kept.

    Source: Gupta, Liu, Vaidya, "Byzantine fault-tolerant distributed machine
    learning using stochastic gradient descent and norm-based comparative
    gradient elimination", DSN-W 2021, Section 2. Bound n >= 2f + 1; it bears
    only lies longer than the honest rows, and f/n must stay below a constant
    that depends on the loss. Cost: the lengths, measured along with distances.
    Deviation: the mean, where the paper sums. The report's margin is
    1 - length / border, with the border half way between the last kept and the
    first left out.
    """

    name: ClassVar[str] = "cge"
    needs_origin: ClassVar[bool] = True

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Average all but the longest."""
        n, count = geometry.n, geometry.n - setting.f
        lengths = geometry.distances[geometry.landmarks[ORIGIN], :n].sqrt().tolist()
        ranking = sorted(range(n), key=lambda i: (lengths[i], i))
        border = (lengths[ranking[count - 1]] + lengths[ranking[min(count, n - 1)]]) / 2
        return Choice(
            weights=mean_of(ranking[:count], n),
            margins=[1 - length / border if border > 0 else -length for length in lengths],
            reasons=[f"length {length:.4g}; the shortest {count} are kept" for length in lengths],
        )
