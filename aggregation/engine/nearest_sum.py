"""The sum of the values nearest to the median of each column, ties to earlier rows.

The rows are gone through in their order: what is nearer than the border is
added up, and of those exactly at the border the first, as far as there is room.
All in float64: two values that differ in the last bit must not tie.
`near_kernel` and `many_near_kernel` use this.
"""

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.blocks import LANES
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.report_kernel import Figure
from pliska.aggregation.engine.tile_sort import Tiling


class NearestSum:
    """Emits the sum of the values nearest to the median, and counts whose they are.

    Args:
        function: To emit into; its arguments are `sharing.ARGUMENTS`.
        element: Of the rows.
        tiling: The layout.
        rows: How many there are.
        counted: For how many there is room in each section of the sums.
    """

    def __init__(
        self,
        function: Function,
        element: Element,
        tiling: Tiling,
        rows: Value | int,
        counted: Value | int,
    ) -> None:
        self._f = function
        self._element = element
        self._rows = rows
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        self._bits = self._kind.of("i1")
        self._kept = function.multiply(str(counted), Figure.KEPT * LANES)

    def emit(self, median: Value, border: Value, count: Value, at: Value) -> Value:
        """Return the sum of `count` values of one vector of columns.

        Args:
            median: Of each column.
            border: The largest of the `count` smallest gaps to it.
            count: How many are added up.
            at: The first column.
        """
        f, wide = self._f, self._wide
        total, nearer, tied, ties = self._nearer_and_tied(median, border, at)
        room = f.value(f"fsub {wide} {count}, {nearer}")
        tied = self._first_of_the_tied(median, border, at, room, tied, ties)
        return f.value(f"fadd {wide} {total}, {tied}")

    def gap(self, value: Value, median: Value) -> Value:
        """Return how far values (double) are from the median."""
        difference = self._f.value(f"fsub {self._wide} {value}, {median}")
        symbol = f"llvm.fabs.v{self._wide.count}f64"
        return self._f.call(self._wide, symbol, (self._wide, difference))

    def _nearer_and_tied(self, median: Value, border: Value, at: Value) -> list[Value]:
        """Add up and count the values within the border, and those on it; all count as kept."""
        f, wide = self._f, self._wide

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

        return f.loop(0, self._rows, 1, look, [(wide, wide.zero)] * 4)

    def _first_of_the_tied(
        self, median: Value, border: Value, at: Value, room: Value, tied: Value, ties: Value
    ) -> Value:
        """Return the sum of the tied values for which there is room; mostly it is all of them."""
        f, wide = self._f, self._wide
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
            return f.loop(0, self._rows, 1, admit, [(wide, wide.zero), (wide, room)])[:1]

        return f.loop(0, times, 1, again, [(wide, tied)])[0]

    def _value_and_gap(self, row: Value, median: Value, at: Value) -> tuple[Value, Value]:
        f = self._f
        pointer = f.at(f.pointer_at("%rows", row), at, self._element.memory)
        value = self._widened(self._element.load(f, self._kind, pointer))
        return value, self.gap(value, median)

    def _count_kept(self, row: Value, which: Value, change: float) -> None:
        f = self._f
        place = f.add(f.multiply(row, LANES), self._kept)
        pointer = f.at("%sums", place, "double")
        before = f.load(self._wide, pointer, 8)
        f.store(self._wide, self._plus(before, which, self._constant(change)), pointer, 8)

    def _plus(self, total: Value, which: Value, value: Value) -> Value:
        """Return total + value in the lanes `which`, else total."""
        f, wide = self._f, self._wide
        added = f.value(f"fadd {wide} {total}, {value}")
        return f.value(f"select {self._bits} {which}, {wide} {added}, {wide} {total}")

    def _widened(self, value: Value) -> Value:
        return self._f.value(f"fpext {self._kind} {value} to {self._wide}")

    def _constant(self, value: float) -> Value:
        return self._f.splat(self._wide, float_literal(value))
