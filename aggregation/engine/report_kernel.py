"""The second look of a kernel at a tile: what the report says of each row.

The tile is in the cache still, and the result too: how far each row is from
it, how long the row is (so that the gate needs no pass of its own), and how
often it lies within the kept range.
"""

from collections.abc import Sequence
from enum import IntEnum

from pliska.aggregation.engine.assembly import Function, Lanes, Value
from pliska.aggregation.engine.blocks import LANES
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import Tiling


class Figure(IntEnum):
    """What is summed of each row."""

    DISTANCE = 0
    """Squared distance to the result."""
    LENGTH = 1
    """Squared length."""
    KEPT = 2
    """Columns within the kept range."""


FIGURES = len(Figure)
"""Sections of the statistics of a kernel that reduces columns."""


def report_function(name: str, element: Element, tiling: Tiling, figure: Figure) -> Function:
    """Return a kernel that sums one figure of rows into double[row][LANES].

    Its arguments are `sharing.ARGUMENTS`. What is given (i64) is the number of
    rows, a multiple of tiling.rows_at_once; `out` is only read, and that only
    for distances.
    """
    f = Function(name, ARGUMENTS)
    n = f.load("i64", "%given", 8)
    report = Report(f, element, [figure], tiling.rows_at_once, sections=[figure])

    def tile(first: Value, _: list[Value]) -> list[Value]:
        end = f.minimum_index(f.add(first, tiling.width), "%stop")
        report.emit_groups(n, 0, first, end)
        return []

    f.loop("%start", "%stop", tiling.width, tile)
    return f


class Report:
    """Emits the second look.

    Args:
        function: To emit into; its arguments are `sharing.ARGUMENTS`.
        element: Of the rows.
        figures: What to sum.
        rows_at_once: Rows whose sums stay in registers together.
        bounds: Where the ends of the kept range of a tile lie; for `Figure.KEPT`.
        sections: What the statistics have room for: double[section][row][LANES].
    """

    def __init__(
        self,
        function: Function,
        element: Element,
        figures: Sequence[Figure],
        rows_at_once: int,
        bounds: tuple[Value, ...] = (),
        sections: Sequence[Figure] = tuple(Figure),
    ) -> None:
        self._f = function
        self._element = element
        self._figures = figures
        self._rows_at_once = rows_at_once
        self._bounds = bounds
        self._sections = sections
        self._kind = Lanes(LANES, "float")
        self._counts = self._kind.of("i32")
        self._wide = self._kind.of("double")

    def emit(self, n: int, first: Value, end: Value) -> None:
        """Add the columns first..end to the statistics of n rows."""
        whole = n // self._rows_at_once * self._rows_at_once
        self.emit_groups(whole, n, first, end)
        if whole < n:
            self._rows([str(row) for row in range(whole, n)], n, first, end)

    def emit_groups(self, stop: Value | int, n: Value | int, first: Value, end: Value) -> None:
        """Add the columns first..end to the statistics of the rows before `stop`.

        Args:
            stop: A multiple of the rows at once.
            n: Rows of a section.
            first: First column.
            end: Column after the last.
        """

        def rows(row: Value, _: list[Value]) -> list[Value]:
            self._rows([self._f.add(row, i) for i in range(self._rows_at_once)], n, first, end)
            return []

        self._f.loop(0, stop, self._rows_at_once, rows)

    def _rows(self, rows: list[Value], n: Value | int, first: Value, end: Value) -> None:
        f = self._f
        pointers = [f.pointer_at("%rows", row) for row in rows]
        bounds = self._bounds if Figure.KEPT in self._figures else ()
        kinds = [self._counts if each is Figure.KEPT else self._kind for each in self._figures]
        carried = [(kind, kind.zero) for _ in rows for kind in kinds]

        def column(at: Value, sums: list[Value]) -> list[Value]:
            result = ""
            if Figure.DISTANCE in self._figures:
                result = f.load(self._kind, f.at("%out", at, "float"), 4)
            within = f.value(f"sub i64 {at}, {first}")
            ends = [f.load(self._kind, f.at(bound, within, "float"), 4) for bound in bounds]
            after: list[Value] = []
            for i, pointer in enumerate(pointers):
                value = self._element.load(f, self._kind, f.at(pointer, at, self._element.memory))
                before = sums[i * len(kinds) : (i + 1) * len(kinds)]
                after += [
                    self._summed(figure, total, value, result, ends)
                    for figure, total in zip(self._figures, before, strict=True)
                ]
            return after

        sums = f.loop(first, end, LANES, column, carried)
        for i, row in enumerate(rows):
            for which, (figure, kind) in enumerate(zip(self._figures, kinds, strict=True)):
                place = f.add(row, f.multiply(str(n), self._sections.index(figure)))
                self._add(sums[i * len(kinds) + which], kind, f.multiply(place, LANES))

    def _summed(
        self, figure: Figure, total: Value, value: Value, result: Value, ends: list[Value]
    ) -> Value:
        f = self._f
        if figure is Figure.LENGTH:
            return f.fma(self._kind, value, value, total)
        if figure is Figure.DISTANCE:
            gap = f.value(f"fsub {self._kind} {value}, {result}")
            return f.fma(self._kind, gap, gap, total)
        bits = self._kind.of("i1")
        above = f.value(f"fcmp oge {self._kind} {value}, {ends[0]}")
        below = f.value(f"fcmp ole {self._kind} {value}, {ends[1]}")
        both = f.value(f"and {bits} {above}, {below}")
        added = f.value(f"add {self._counts} {total}, {f.splat(self._counts, '1')}")
        return f.value(f"select {bits} {both}, {self._counts} {added}, {self._counts} {total}")

    def _add(self, total: Value, kind: Lanes, offset: Value) -> None:
        f = self._f
        widen = "fpext" if kind.element == "float" else "uitofp"
        wide = f.value(f"{widen} {kind} {total} to {self._wide}")
        pointer = f.at("%sums", offset, "double")
        before = f.load(self._wide, pointer, 8)
        f.store(self._wide, f.value(f"fadd {self._wide} {before}, {wide}"), pointer, 8)
