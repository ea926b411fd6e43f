"""Rules that decide on the geometry of the rows alone.

The rows are read once for their inner products and once more for one weighted
sum; whatever a rule iterates, it does on n x n numbers.
"""

from abc import abstractmethod
from dataclasses import dataclass

from pliska.aggregation import distances
from pliska.aggregation.aggregator import Rule
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import Choice, Combination, Points
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class DistanceRule(Rule):
    """A rule that decides on n x n numbers and ends in one weighted sum of rows."""

    @abstractmethod
    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Weigh the points.

        Args:
            geometry: Of the points, float64 on the CPU.
            setting: The circumstances, with the faults still to bear.
        """

    def read_ahead(self, rows: Rows, f: int) -> None:
        """Multiply the rows."""
        del f
        if not self.needs_origin:
            distances.read_ahead(rows)

    def combine(self, points: Points, setting: Setting) -> Combination:
        """Measure the points, weigh them, and sum the rows that have weight."""
        return points.combine(self.choose(points.geometry, setting))
