"""The mean of each coordinate without its extremes."""

from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.coordinate_rule import BandRule


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(BandRule):
    """Coordinate-wise trimmed mean: drop the f smallest and f largest, average the n - 2f left.

    Source: Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed
    learning: towards optimal statistical rates", ICML 2018, Definition 2.
    Breakdown point (n-1)/2: bound n >= 2f + 1. Cost as the median's. Deviation:
    the paper trims a fraction beta of n; here `f` is a count, because rounding
    beta * n down silently trims nothing for small n.
    """

    name: ClassVar[str] = "trimmed-mean"

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
