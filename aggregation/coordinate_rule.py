"""Rules that treat every coordinate alone, and those that average some of its values."""

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch

from pliska.aggregation import order_statistics
from pliska.aggregation.aggregator import Rule
from pliska.aggregation.engine.networks import Nearest, Selection
from pliska.aggregation.order_statistics import BandMean, band_mean
from pliska.aggregation.points import Combination, Points, Standing
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class CoordinateRule(Rule):
    """A rule that reads the rows once, block by block.

    The report's margin is the row's share of the kept values relative to an
    equal share, minus 1: 0 is ordinary, -1 never kept.
    """

    @abstractmethod
    def reduce(self, rows: Rows, setting: Setting) -> BandMean:
        """Reduce each column of the rows to one value."""

    def combine(self, points: Points, setting: Setting) -> Combination:
        """Reduce every column."""
        made = reduced(points, points.reduce(lambda rows: self.reduce(rows, setting)))
        if setting.masses is None:
            return made

        def reasons() -> list[str]:
            return [
                f"{weight:.2%} of the voting mass kept"
                for weight in made.standing().weights.cpu().tolist()
            ]

        return replace(made, reasons=reasons)


@dataclass(frozen=True, kw_only=True)
class AverageRule(CoordinateRule):
    """A rule that averages some of the values in every coordinate."""

    @abstractmethod
    def selection(self, n: int, f: int) -> Selection | Nearest:
        """Return which of n values are averaged."""

    def read_ahead(self, rows: Rows, f: int) -> None:
        """Average."""
        order_statistics.read_ahead(rows, self.selection(rows.n, f))

    def combine(self, points: Points, setting: Setting) -> Combination:
        """Average; mixed rows are mixed and averaged in one pass where possible."""
        if setting.masses is not None:
            return super().combine(points, setting)
        selection = self.selection(points.n, setting.f)
        return reduced(points, points.average(selection, lambda rows: self.reduce(rows, setting)))


@dataclass(frozen=True, kw_only=True)
class BandRule(AverageRule):
    """A rule that averages a band of ranks in every coordinate."""

    @abstractmethod
    def band(self, n: int, f: int) -> range:
        """Return the ranks (0 is the smallest) whose values are averaged."""

    def selection(self, n: int, f: int) -> Selection:
        """Those of the band."""
        return Selection(n, self.band(n, f))

    def reduce(self, rows: Rows, setting: Setting) -> BandMean:
        """Average the band in every coordinate."""
        return band_mean(rows, self.band(rows.n, setting.f))


def reduced(points: Points, made: BandMean) -> Combination:
    """Report on a reduction of all columns."""
    n, d = points.rows.n, points.rows.whole_d

    def standing() -> Standing:
        total = made.kept.sum()
        weights = made.kept / torch.where(total > 0, total, 1.0)
        return Standing(weights, made.distances, margins=n * weights - 1)

    def reasons() -> list[str]:
        return [
            f"within the kept range in {kept / d:.0%} of the coordinates"
            for kept in made.kept.cpu().tolist()
        ]

    return Combination(made.vector, standing, reasons)
