"""The kernel of means around the median: the values nearest to it, ties to earlier rows.

Each tile is sorted as far as its median and the values that may lie at the
border of the nearest (`tile_sort`), which are then added up (`nearest_sum`).
`bands` and `mixtures` call this.
"""

from collections.abc import Sequence

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.band_kernel import divided
from pliska.aggregation.engine.nearest_sum import NearestSum
from pliska.aggregation.engine.networks import ordered_network
from pliska.aggregation.engine.report_kernel import Figure, Report
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import Source, TileSort, Tiling


def near_function(
    name: str, n: int, count: int, source: Source, tiling: Tiling, figures: Sequence[Figure]
) -> Function:
    """Return the kernel that averages the `count` values nearest to the median of n.

    Its arguments are `sharing.ARGUMENTS`. What is kept is always counted:
    `count` rows in every column, the first ones where all are equal.
    """
    return _NearKernel(name, n, count, source, tiling, figures).function


class _NearKernel:
    def __init__(
        self,
        name: str,
        n: int,
        count: int,
        source: Source,
        tiling: Tiling,
        figures: Sequence[Figure],
    ) -> None:
        self._n, self._count = n, count
        self._tiling = tiling
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        f = self.function = Function(name, ARGUMENTS)
        ends = {*range(n - count + 1), *range(count - 1, n), (n - 1) // 2, n // 2}
        self._ranks = sorted(ends)
        network = ordered_network(n, tuple(self._ranks))
        self._sort = TileSort(f, network, source, tiling, "%scratch")
        looked_at = [figure for figure in figures if figure is not Figure.KEPT]
        self._nearest = NearestSum(f, source.element, tiling, n, n)
        self._report = Report(f, source.element, looked_at, tiling.rows_at_once)
        f.loop("%start", "%stop", tiling.width, self._tile)

    def _tile(self, first: Value, _: list[Value]) -> list[Value]:
        end = self.function.minimum_index(self.function.add(first, self._tiling.width), "%stop")
        self._sort.emit(first, end, self._finish)
        self._report.emit(self._n, first, end)
        return []

    def _finish(self, ordered: list[Value], at: Value, within: Value) -> None:
        """Average the values of one vector of columns and count whose they are."""
        del within
        f, wide = self.function, self._wide
        ranked = dict(zip(self._ranks, map(self._widened, ordered), strict=True))
        middle = f.value(f"fadd {wide} {ranked[(self._n - 1) // 2]}, {ranked[self._n // 2]}")
        median = f.value(f"fmul {wide} {middle}, {self._constant(0.5)}")
        border = self._border(ranked, median)
        total = self._nearest.emit(median, border, self._constant(self._count), at)
        mean = divided(f, wide, total, self._count)
        result = f.value(f"fptrunc {wide} {mean} to {self._kind}")
        f.store(self._kind, result, f.at("%out", at, "float"), 4)

    def _border(self, ranked: dict[int, Value], median: Value) -> Value:
        """Return the largest of the `count` smallest gaps to the median.

        The nearest are neighbours in the order: of all runs of `count`, those
        whose farther end is nearest.
        """
        gaps: dict[int, Value] = {}

        def gap(rank: int) -> Value:
            if rank not in gaps:
                gaps[rank] = self._nearest.gap(ranked[rank], median)
            return gaps[rank]

        f, wide = self.function, self._wide
        border = ""
        for first in range(self._n - self._count + 1):
            reach = f.maximum(wide, gap(first), gap(first + self._count - 1))
            border = f.minimum(wide, border, reach) if border else reach
        return border

    def _widened(self, value: Value) -> Value:
        return self.function.value(f"fpext {self._kind} {value} to {self._wide}")

    def _constant(self, value: float) -> Value:
        return self.function.splat(self._wide, float_literal(value))
