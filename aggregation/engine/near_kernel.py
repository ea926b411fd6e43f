"""The kernel of means around the median: the values nearest to it, ties to earlier rows.

Each tile is sorted as far as its median and the values that may lie at the
border of the nearest (`tile_sort`). Then the rows are gone through in their
order: what is nearer than the border is added up, and of those exactly at the
border the first, as far as there is room. All in float64: two values that
differ in the last bit must not tie. `bands` and `mixtures` call this.
"""

from collections.abc import Sequence

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.band_kernel import divided
from pliska.aggregation.engine.blocks import LANES
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
        self._element = source.element
        self._tiling = tiling
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        self._bits = self._kind.of("i1")
        f = self.function = Function(name, ARGUMENTS)
        ends = {*range(n - count + 1), *range(count - 1, n), (n - 1) // 2, n // 2}
        self._ranks = sorted(ends)
        network = ordered_network(n, tuple(self._ranks))
        self._sort = TileSort(f, network, source, tiling, "%scratch")
        looked_at = [figure for figure in figures if figure is not Figure.KEPT]
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
        total, nearer, tied, ties = self._nearer_and_tied(median, border, at)
        room = f.value(f"fsub {wide} {self._constant(self._count)}, {nearer}")
        tied = self._first_of_the_tied(median, border, at, room, tied, ties)
        mean = divided(f, wide, f.value(f"fadd {wide} {total}, {tied}"), self._count)
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
                gaps[rank] = self._gap(ranked[rank], median)
            return gaps[rank]

        f, wide = self.function, self._wide
        border = ""
        for first in range(self._n - self._count + 1):
            reach = f.maximum(wide, gap(first), gap(first + self._count - 1))
            border = f.minimum(wide, border, reach) if border else reach
        return border

    def _nearer_and_tied(self, median: Value, border: Value, at: Value) -> list[Value]:
        """Add up and count the values within the border, and those on it; all count as kept."""
        f, wide = self.function, self._wide

        def look(row: Value, sums: list[Value]) -> list[Value]:
            value, gap = self._value_and_gap(row, median, at)
            nearer = f.value(f"fcmp olt {wide} {gap}, {border}")
            tied = f.value(f"fcmp oeq {wide} {gap}, {border}")
            self._count_kept(row, f.value(f"or {self._bits} {nearer}, {tied}"), 1.0)
            return [
                self._plus(sums[0], nearer, value),
                self._plus(sums[1], nearer, self._constant(1.0)),
                self._plus(sums[2], tied, value),
                self._plus(sums[3], tied, self._constant(1.0)),
            ]

        return f.loop(0, self._n, 1, look, [(wide, wide.zero)] * 4)

    def _first_of_the_tied(
        self, median: Value, border: Value, at: Value, room: Value, tied: Value, ties: Value
    ) -> Value:
        """Return the sum of the tied values for which there is room; mostly it is all of them."""
        f, wide = self.function, self._wide
        crowded = f.value(f"fcmp ogt {wide} {ties}, {room}")
        symbol = f"llvm.vector.reduce.or.v{self._bits.count}i1"
        times = f.value(f"zext i1 {f.call('i1', symbol, (self._bits, crowded))} to i64")

        def admit(row: Value, sums: list[Value]) -> list[Value]:
            value, gap = self._value_and_gap(row, median, at)
            on_border = f.value(f"fcmp oeq {wide} {gap}, {border}")
            has_room = f.value(f"fcmp ogt {wide} {sums[1]}, {wide.zero}")
            enters = f.value(f"and {self._bits} {on_border}, {has_room}")
            stays_out = f.value(f"xor {self._bits} {on_border}, {enters}")
            self._count_kept(row, stays_out, -1.0)
            return [
                self._plus(sums[0], enters, value),
                self._plus(sums[1], enters, self._constant(-1.0)),
            ]

        def again(_: Value, __: list[Value]) -> list[Value]:
            return f.loop(0, self._n, 1, admit, [(wide, wide.zero), (wide, room)])[:1]

        return f.loop(0, times, 1, again, [(wide, tied)])[0]

    def _value_and_gap(self, row: Value, median: Value, at: Value) -> tuple[Value, Value]:
        f = self.function
        pointer = f.at(f.pointer_at("%rows", row), at, self._element.memory)
        value = self._widened(self._element.load(f, self._kind, pointer))
        return value, self._gap(value, median)

    def _count_kept(self, row: Value, which: Value, change: float) -> None:
        f = self.function
        place = f.add(f.multiply(row, LANES), Figure.KEPT * self._n * LANES)
        pointer = f.at("%sums", place, "double")
        before = f.load(self._wide, pointer, 8)
        f.store(self._wide, self._plus(before, which, self._constant(change)), pointer, 8)

    def _plus(self, total: Value, which: Value, value: Value) -> Value:
        """Return total + value in the lanes `which`, else total."""
        f, wide = self.function, self._wide
        added = f.value(f"fadd {wide} {total}, {value}")
        return f.value(f"select {self._bits} {which}, {wide} {added}, {wide} {total}")

    def _gap(self, value: Value, median: Value) -> Value:
        difference = self.function.value(f"fsub {self._wide} {value}, {median}")
        symbol = f"llvm.fabs.v{self._wide.count}f64"
        return self.function.call(self._wide, symbol, (self._wide, difference))

    def _widened(self, value: Value) -> Value:
        return self.function.value(f"fpext {self._kind} {value} to {self._wide}")

    def _constant(self, value: float) -> Value:
        return self.function.splat(self._wide, float_literal(value))
