"""The plain mean: the yardstick, not a defence."""

from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.coordinate_rule import BandRule


@dataclass(frozen=True, kw_only=True)
class Mean(BandRule):
    """Average of all rows: sum over i of x_i / n.

    Breakdown point 0: one row that passes the gate moves it anywhere
    (Blanchard et al. 2017, Lemma 1). `f` therefore only counts rows that the
    gate may refuse; it is 0 unless said otherwise. Cost O(n d). The sum is in
    float64, in canonical order.
    """

    name: ClassVar[str] = "mean"

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
