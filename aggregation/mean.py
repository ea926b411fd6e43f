"""The plain mean: the yardstick, not a defence."""

from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.coordinate_rule import BandRule
from pliska.aggregation.order_statistics import BandMean
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting
from pliska.aggregation.weighted_band import mass_trimmed_mean


@dataclass(frozen=True, kw_only=True)
class Mean(BandRule):
    """Average of all rows: sum over i of x_i / n.

    Breakdown point 0: one row that passes the gate moves it anywhere
    (Blanchard et al. 2017, Lemma 1). `f` therefore only counts rows that the
    gate may refuse; it is 0 unless said otherwise. Cost O(n d). The sum is in
    float64, in canonical order.
    """

    name: ClassVar[str] = "mean"
    uses: ClassVar[frozenset[str]] = frozenset({"masses"})

    f: int = 0

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= f + 1"

    def rows_least(self, f: int) -> int:
        """One row beside the refused ones."""
        return f + 1

    def band(self, n: int, f: int) -> range:
        """All ranks."""
        del f
        return range(n)

    def reduce(self, rows: Rows, setting: Setting) -> BandMean:
        """Average, by voting mass if there is any."""
        if setting.masses is None:
            return super().reduce(rows, setting)
        return mass_trimmed_mean(rows, setting.masses, 0.0)
