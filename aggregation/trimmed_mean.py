"""The mean of each coordinate without its extremes."""

from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.coordinate_rule import BandRule
from pliska.aggregation.mass import faulty_mass
from pliska.aggregation.order_statistics import BandMean
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting
from pliska.aggregation.weighted_band import mass_trimmed_mean


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(BandRule):
    """Coordinate-wise trimmed mean: drop the f smallest and f largest, average the n - 2f left.

    Source: Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed
    learning: towards optimal statistical rates", ICML 2018, Definition 2.
    Breakdown point (n-1)/2: bound n >= 2f + 1. Cost as the median's. Deviation:
    the paper trims a fraction beta of n; here `f` is a count, because rounding
    beta * n down silently trims nothing for small n. With voting masses, what is
    cut at either end is the mass that the heaviest f workers hold.
    """

    name: ClassVar[str] = "trimmed-mean"
    uses: ClassVar[frozenset[str]] = frozenset({"masses"})

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """At least one value must be left."""
        return 2 * f + 1

    def band(self, n: int, f: int) -> range:
        """The ranks from f to n - f - 1."""
        return range(f, n - f)

    def reduce(self, rows: Rows, setting: Setting) -> BandMean:
        """Trim f ranks, or the mass of f workers, at either end."""
        if setting.masses is None:
            return super().reduce(rows, setting)
        return mass_trimmed_mean(rows, setting.masses, faulty_mass(setting.masses, setting.f))
