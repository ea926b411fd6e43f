"""The mean around the median of each coordinate."""

from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.coordinate_rule import AverageRule
from pliska.aggregation.engine.networks import Nearest
from pliska.aggregation.near_median import near_median_mean
from pliska.aggregation.order_statistics import BandMean
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class MeaMed(AverageRule):
    """Mean around the median: per coordinate, the mean of the n - f values nearest the median.

    Of values equally near the median, those of workers earlier in canonical
    order are taken. For even n the median is the mean of the middle two.

    Source: Xie, Koyejo, Gupta, "Generalized Byzantine-tolerant SGD", 2018,
    Definition 7 (mean-around-median). Breakdown point (n-1)/2: bound
    n >= 2f + 1. Cost O(n log^2 n) comparisons a coordinate, one read of the
    rows. No deviation.
    """

    name: ClassVar[str] = "meamed"

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def selection(self, n: int, f: int) -> Nearest:
        """The n - f nearest the median."""
        return Nearest(n, n - f)

    def reduce(self, rows: Rows, setting: Setting) -> BandMean:
        """Average the values nearest the median."""
        return near_median_mean(rows, rows.n - setting.f)
