"""Sorting the columns of a tile of many rows: groups in registers, merged by a table.

`tile_sort` writes a network out, which takes long to compile where rows are
many. Here groups of rows go through one such network, whichever they are, and
all that follows is read from a table: a kernel serves any number of rows. Tiles
are narrow, so that they stay in the second cache. `many_band_kernel` and
`many_near_kernel` use this.
"""

from collections.abc import Callable

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.merge_sort import GROUP_MAX, sorting_pairs
from pliska.aggregation.engine.report_kernel import Report
from pliska.aggregation.engine.tile_sort import Tiling

ROWS_BEFORE = 2
"""Scratch rows before those of the sort: the ends of the kept range."""

GIVEN = 4
"""Numbers (i64) that every kernel of many rows is given first.

n; n filled up to a multiple of tiling.rows_at_once, which is how many rows sums has in each
section; address and number of the exchanges.
"""


class MergeSort:
    """Emits the sorting of a tile.

    Exchanges are pairs of wires (i32), the minimum's first. Wires are the groups' places in
    turn, ascending in each; the table of rows is filled up to whole groups, and wires from n on
    hold infinity. scratch holds float[ROWS_BEFORE + wires][tiling.width].

    Args:
        function: To emit into; its arguments are `sharing.ARGUMENTS`, what is given begins
            with `GIVEN`.
        element: Of the rows.
        tiling: The layout.
    """

    def __init__(self, function: Function, element: Element, tiling: Tiling) -> None:
        self._f = function
        self._element = element
        self._tiling = tiling
        self._kind = Lanes(tiling.lanes, "float")
        self.rows = self.number_given(0)
        """n (i64)."""
        self.counted = self.number_given(1)
        """Rows of a section of the sums (i64)."""
        self._pairs_at = function.pointer_at("%given", 2)
        self._exchanges = self.number_given(3)
        self._wires = function.at("%scratch", ROWS_BEFORE * tiling.width, "float")

    def number_given(self, place: int) -> Value:
        """Return one of the numbers that the kernel is given (i64)."""
        return self._f.load("i64", self._f.at("%given", place, "i64"), 8)

    def wire_at(self, table: Value, index: Value) -> Value:
        """Return the wire (i64) at a place of a table (i32)."""
        wire = self._f.load("i32", self._f.at(table, index, "i32"), 4)
        return self._f.value(f"zext i32 {wire} to i64")

    def value(self, wire: Value, within: Value) -> Value:
        """Return what a wire holds for one vector of columns of the tile."""
        return self._f.load(self._kind, self._f.at(self._row(wire), within, "float"), 4)

    def emit(self, finish: Callable[[Value, Value], None], report: Report) -> None:
        """Sort the columns, a tile after the other, finish each vector of them, and report.

        Args:
            finish: Takes a column, and its place in the tile.
            report: Of all rows, on each tile.
        """
        f = self._f

        def tile(first: Value, _: list[Value]) -> list[Value]:
            end = f.minimum_index(f.add(first, self._tiling.width), "%stop")
            self._tile(first, end, finish)
            report.emit_groups(self.counted, self.counted, first, end)
            return []

        f.loop("%start", "%stop", self._tiling.width, tile)

    def _tile(self, first: Value, end: Value, finish: Callable[[Value, Value], None]) -> None:
        f = self._f

        def column(at: Value, _: list[Value]) -> list[Value]:
            finish(at, f.value(f"sub i64 {at}, {first}"))
            return []

        f.loop(0, self.rows, GROUP_MAX, lambda row, _: self._sort_group(row, first, end))
        f.loop(0, self._exchanges, 1, self._exchange)
        f.loop(first, end, self._tiling.lanes, column)

    def _sort_group(self, row: Value, first: Value, end: Value) -> list[Value]:
        """Sort the rows from `row` on into the scratch rows of as many wires."""
        f, element = self._f, self._element
        places = [f.add(row, i) for i in range(GROUP_MAX)]
        rows = [f.pointer_at("%rows", place) for place in places]
        exists = [f.value(f"icmp slt i64 {place}, {self.rows}") for place in places]
        infinity = f.splat(self._kind, float_literal(float("inf")))
        pairs, order = sorting_pairs(GROUP_MAX)
        target = self._row(row)

        def column(at: Value, _: list[Value]) -> list[Value]:
            held = []
            for pointer, is_row in zip(rows, exists, strict=True):
                value = element.load(f, self._kind, f.at(pointer, at, element.memory))
                f.prefetch(f.at(pointer, f.add(at, self._tiling.width), element.memory), 3)
                choice = f"{self._kind} {value}, {self._kind} {infinity}"
                held.append(f.value(f"select i1 {is_row}, {choice}"))
            for low, high in pairs:
                both = held[low], held[high]
                held[low], held[high] = (
                    f.minimum(self._kind, *both),
                    f.maximum(self._kind, *both),
                )
            within = f.value(f"sub i64 {at}, {first}")
            for rank, wire in enumerate(order):
                place = f.at(f.at(target, rank * self._tiling.width, "float"), within, "float")
                f.store(self._kind, held[wire], place, 4)
            return []

        f.loop(first, end, self._tiling.lanes, column)
        return []

    def _exchange(self, number: Value, _: list[Value]) -> list[Value]:
        """Exchange two wires of the whole tile."""
        f, kind = self._f, self._kind
        pair = f.multiply(number, 2)
        low, high = (self._row(self.wire_at(self._pairs_at, f.add(pair, i))) for i in range(2))
        offsets = range(0, self._tiling.width, self._tiling.lanes)
        places = [(f.at(low, at, "float"), f.at(high, at, "float")) for at in offsets]
        values = [[f.load(kind, place, 4) for place in both] for both in places]
        for (low_at, high_at), (a, b) in zip(places, values, strict=True):
            f.store(kind, f.minimum(kind, a, b), low_at, 4)
            f.store(kind, f.maximum(kind, a, b), high_at, 4)
        return []

    def _row(self, wire: Value) -> Value:
        return self._f.at(self._wires, self._f.multiply(wire, self._tiling.width), "float")
