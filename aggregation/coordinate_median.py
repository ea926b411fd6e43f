"""The median of each coordinate."""

from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.coordinate_rule import BandRule
from pliska.aggregation.order_statistics import BandMean
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting
from pliska.aggregation.weighted_band import mass_median


@dataclass(frozen=True, kw_only=True)
class CoordinateMedian(BandRule):
    """Coordinate-wise median; for even n the mean of the two middle values.

    Source: Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed
    learning: towards optimal statistical rates", ICML 2018, Definition 1.
    Breakdown point (n-1)/2: bound n >= 2f + 1. Cost O(n log^2 n) comparisons a
    coordinate, one read of the rows. No deviation.
    """

    name: ClassVar[str] = "coordinate-median"
    uses: ClassVar[frozenset[str]] = frozenset({"masses"})

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def band(self, n: int, f: int) -> range:
        """The middle rank, or the two middle ones."""
        del f
        return range((n - 1) // 2, n // 2 + 1)

    def reduce(self, rows: Rows, setting: Setting) -> BandMean:
        """Take the middle rank, or the value at half of the voting mass."""
        if setting.masses is None:
            return super().reduce(rows, setting)
        return mass_median(rows, setting.masses)
