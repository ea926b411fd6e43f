"""The kernel of bands of ranks among many rows: groups sorted in registers, merged by a table.

`band_kernel` writes a network out, which takes long to compile where rows are
many. Here groups of rows go through one such network, whichever they are, and
all that follows is read from a table: one kernel serves any number of rows.
Tiles are narrow, so that they stay in the nearest caches. `many_bands` calls this.
"""

from collections.abc import Sequence

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.merge_sort import GROUP_MAX, sorting_pairs
from pliska.aggregation.engine.report_kernel import Figure, Report
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import Tiling

ENDS = 2
"""Scratch rows before those of the sort: the ends of the kept range."""


def merge_assembly(name: str, element: Element, tiling: Tiling) -> str:
    """Return the kernel as LLVM assembly; its arguments are `sharing.ARGUMENTS`.

    Given are n (i64), n filled up to a multiple of tiling.rows_at_once, as many rows as sums
    has in each section, the address of the exchanges, their number, the address of the kept
    wires, and their number. Exchanges are pairs of wires (i32), the minimum's first. Wires are
    the groups' places in turn; the table of rows is filled up to whole groups, and wires from
    n on hold infinity. scratch holds float[ENDS + wires][tiling.width].
    """
    return _MergeKernel(name, element, tiling).text()


class _MergeKernel:
    def __init__(self, name: str, element: Element, tiling: Tiling) -> None:
        self._element = element
        self._tiling = tiling
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        f = self._f = Function(name, ARGUMENTS)
        numbers = [f.load("i64", f.at("%given", i, "i64"), 8) for i in range(6)]
        self._n, self._counted, _, self._exchanges, _, self._kept = numbers
        self._pairs_at, self._wires_at = (f.pointer_at("%given", i) for i in (2, 4))
        self._wires = f.at("%scratch", ENDS * tiling.width, "float")
        bounds = ("%scratch", f.at("%scratch", tiling.width, "float"))
        self._report = Report(f, element, list(Figure), tiling.rows_at_once, bounds)

    def text(self) -> str:
        self._f.loop("%start", "%stop", self._tiling.width, self._tile)
        return self._f.text()

    def _tile(self, first: Value, _: list[Value]) -> list[Value]:
        f = self._f
        end = f.minimum_index(f.add(first, self._tiling.width), "%stop")
        f.loop(0, self._n, GROUP_MAX, lambda row, _: self._sort_group(row, first, end))
        f.loop(0, self._exchanges, 1, self._exchange)
        f.loop(first, end, self._tiling.lanes, lambda at, _: self._finish(at, first))
        self._report.emit_groups(self._counted, self._counted, first, end)
        return []

    def _sort_group(self, row: Value, first: Value, end: Value) -> list[Value]:
        """Sort the rows from `row` on into the scratch rows of as many wires."""
        f, element = self._f, self._element
        places = [f.add(row, i) for i in range(GROUP_MAX)]
        rows = [f.pointer_at("%rows", place) for place in places]
        exists = [f.value(f"icmp slt i64 {place}, {self._n}") for place in places]
        infinity = f.splat(self._kind, float_literal(float("inf")))
        target = self._scratch_row(row)

        def column(at: Value, _: list[Value]) -> list[Value]:
            held = []
            for pointer, is_row in zip(rows, exists, strict=True):
                value = element.load(f, self._kind, f.at(pointer, at, element.memory))
                f.prefetch(f.at(pointer, f.add(at, self._tiling.width), element.memory), 3)
                choice = f"{self._kind} {value}, {self._kind} {infinity}"
                held.append(f.value(f"select i1 {is_row}, {choice}"))
            pairs, order = sorting_pairs(GROUP_MAX)
            for low, high in pairs:
                held[low], held[high] = (
                    f.minimum(self._kind, held[low], held[high]),
                    f.maximum(self._kind, held[low], held[high]),
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
        f, pair = self._f, self._f.multiply(number, 2)
        low, high = (
            self._scratch_row(self._wire_at(self._pairs_at, f.add(pair, i))) for i in range(2)
        )
        offsets = range(0, self._tiling.width, self._tiling.lanes)
        places = [(f.at(low, at, "float"), f.at(high, at, "float")) for at in offsets]
        values = [tuple(f.load(self._kind, place, 4) for place in both) for both in places]
        for (low_at, high_at), (a, b) in zip(places, values, strict=True):
            f.store(self._kind, f.minimum(self._kind, a, b), low_at, 4)
            f.store(self._kind, f.maximum(self._kind, a, b), high_at, 4)
        return []

    def _finish(self, at: Value, first: Value) -> list[Value]:
        """Average the kept values in float64 and store the result and the kept range."""
        f, kind, wide = self._f, self._kind, self._wide
        within = f.value(f"sub i64 {at}, {first}")

        def add(number: Value, carried: list[Value]) -> Sequence[Value]:
            row = self._scratch_row(self._wire_at(self._wires_at, number))
            value = f.load(kind, f.at(row, within, "float"), 4)
            total, least, largest = carried
            return [
                f.value(f"fadd {wide} {total}, {f.value(f'fpext {kind} {value} to {wide}')}"),
                f.minimum(kind, value, least),
                f.maximum(kind, value, largest),
            ]

        ends = [f.splat(kind, float_literal(end)) for end in (float("inf"), float("-inf"))]
        carried = [(wide, wide.zero), *((kind, end) for end in ends)]
        total, least, largest = f.loop(0, self._kept, 1, add, carried)
        count = f.splat(wide, f.value(f"sitofp i64 {self._kept} to double"))
        mean = f.value(f"fdiv {wide} {total}, {count}")
        f.store(kind, f.value(f"fptrunc {wide} {mean} to {kind}"), f.at("%out", at, "float"), 4)
        for end, value in enumerate((least, largest)):
            row = f.at("%scratch", end * self._tiling.width, "float")
            f.store(kind, value, f.at(row, within, "float"), 4)
        return []

    def _scratch_row(self, wire: Value) -> Value:
        return self._f.at(self._wires, self._f.multiply(wire, self._tiling.width), "float")

    def _wire_at(self, table: Value, index: Value) -> Value:
        wire = self._f.load("i32", self._f.at(table, index, "i32"), 4)
        return self._f.value(f"zext i32 {wire} to i64")
