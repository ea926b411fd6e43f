"""MoNNA: the mean of the rows nearest to a trusted one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import Choice, mean_of
from pliska.aggregation.setting import Setting

TRUSTED = "trusted"
"""Name of the landmark at the reference."""


@dataclass(frozen=True, kw_only=True)
class MoNNA(DistanceRule):
    """Mean of the n - f rows nearest to `reference`, which must be trusted.

    In the paper every worker aggregates for itself and trusts its own vector;
    pass that, which is one of the rows, as the reference. At a coordinator it
    makes sense only with a reference of its own: without one this is an error,
    never row 0. Ties go to the earlier worker.

    Source: Farhadkhani, Guerraoui, Gupta, Hoang, Pinot, Stephan, "Robust
    collaborative learning with linear gradient overhead", ICML 2023, Algorithm
    1 (nearest-neighbour averaging). Breakdown point (n-1)/2: bound n >= 2f + 1.
    Cost O(n^2 d) for the distances. No deviation. The report's margin is
    1 - distance / border, with the border half way between the last kept and
    the first left out.
    """

    name: ClassVar[str] = "monna"
    uses: ClassVar[frozenset[str]] = frozenset({"reference"})

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def landmarks(self, setting: Setting) -> Mapping[str, Tensor]:
        """The reference."""
        return {} if setting.reference is None else {TRUSTED: setting.reference}

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Average the nearest n - f."""
        n, count = geometry.n, geometry.n - setting.f
        gaps = geometry.distances[geometry.landmarks[TRUSTED], :n].sqrt().tolist()
        ranking = sorted(range(n), key=lambda i: (gaps[i], i))
        border = (gaps[ranking[count - 1]] + gaps[ranking[min(count, n - 1)]]) / 2
        return Choice(
            weights=mean_of(ranking[:count], n),
            margins=[1 - gap / border if border > 0 else -gap for gap in gaps],
            reasons=[f"{gap:.4g} from the reference; the nearest {count} are kept" for gap in gaps],
        )
