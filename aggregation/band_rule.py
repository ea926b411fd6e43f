"""Rules that average a band of ranks in each coordinate: mean, median, trimmed mean."""

from abc import abstractmethod
from dataclasses import dataclass

from pliska.aggregation.aggregator import Combination, Rule
from pliska.aggregation.order_statistics import band_mean
from pliska.aggregation.rows import Rows


@dataclass(frozen=True, kw_only=True)
class BandRule(Rule):
    """A rule that averages a band of ranks in every coordinate.

    The report's margin is the row's share of the kept values relative to an
    equal share, minus 1: 0 is ordinary, -1 never kept.
    """

    @abstractmethod
    def band(self, n: int, f: int) -> range:
        """Return the ranks (0 is the smallest) whose values are averaged."""

    def combine(self, rows: Rows, f: int) -> Combination:
        """Average the band in every coordinate."""
        made = band_mean(rows, self.band(rows.n, f))
        total = sum(made.kept) or 1.0
        weights = [kept / total for kept in made.kept]
        return Combination(
            vector=made.vector,
            weights=weights,
            distances=made.distances,
            margins=[rows.n * weight - 1 for weight in weights],
            reasons=[
                f"within the kept range in {kept / rows.d:.0%} of the coordinates"
                for kept in made.kept
            ],
        )
