"""The kernels of bands of voting mass: one read of the rows, one write of the result.

The values of a column lie side by side on a line, each as wide as its mass, in
their order. Where each begins is found by comparing every two of them: n^2
comparisons, but no value loses sight of whose it is. Then the result follows,
and how much of each row is in it. `masses` calls this.
"""

from collections.abc import Callable

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.blocks import LANES
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.report_kernel import Figure, Report
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import AHEAD_COLUMNS, Tiling

ROWS_AT_ONCE = 4
"""Rows that are compared with all others together."""

INFINITY = float_literal(float("inf"))


def rows_padded(n: int) -> int:
    """Return n, filled up to a multiple of `ROWS_AT_ONCE`."""
    return -(-n // ROWS_AT_ONCE) * ROWS_AT_ONCE


def scratch_floats(n: int, tiling: Tiling) -> int:
    """Return the float32 values of scratch memory that the kernels need."""
    return 3 * rows_padded(n) * tiling.lanes


def trimmed_function(name: str, n: int, element: Element, tiling: Tiling) -> Function:
    """Return the kernel that averages what lies between the two limits, by width.

    Its arguments are `sharing.ARGUMENTS`; given are the addresses of the masses,
    double[rows_padded(n)], zero after the n-th, and of the limits, double[2].

    Kept is the width of each row between them.
    """
    return _MassKernel(name, n, element, tiling, _MassKernel.trimmed_mean).function


def median_function(name: str, n: int, element: Element, tiling: Tiling) -> Function:
    """Return the kernel of the median: the mean of two values.

    They are the first that ends at or after the first limit, and the first
    that ends after the second. Kept are the rows from the one to the other.
    """
    return _MassKernel(name, n, element, tiling, _MassKernel.median).function


class _MassKernel:
    def __init__(
        self,
        name: str,
        n: int,
        element: Element,
        tiling: Tiling,
        reduce: Callable[["_MassKernel", Value], Value],
    ) -> None:
        self._n = n
        self._element = element
        self._tiling = tiling
        self._reduce = reduce
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        self._bits = self._kind.of("i1")
        f = self.function = Function(name, ARGUMENTS)
        self._begins = f.at("%scratch", rows_padded(n) * tiling.lanes, "float")
        for row in range(n, rows_padded(n)):
            never = f.splat(self._kind, INFINITY)
            f.store(self._kind, never, f.at("%scratch", row * tiling.lanes, "float"), 4)
        self._masses, limits = (f.pointer_at("%given", i) for i in range(2))
        self._limits = [
            f.splat(self._wide, f.load("double", f.at(limits, i, "double"), 8)) for i in range(2)
        ]
        figures = [Figure.DISTANCE, Figure.LENGTH]
        self._report = Report(f, element, figures, tiling.rows_at_once)
        f.loop("%start", "%stop", tiling.width, self._tile)

    def _tile(self, first: Value, _: list[Value]) -> list[Value]:
        f = self.function
        end = f.minimum_index(f.add(first, self._tiling.width), "%stop")
        f.loop(first, end, self._tiling.lanes, self._column)
        self._report.emit(self._n, first, end)
        return []

    def _column(self, at: Value, _: list[Value]) -> list[Value]:
        f, kind = self.function, self._kind

        def widen(row: Value, _: list[Value]) -> list[Value]:
            pointer = f.at(f.pointer_at("%rows", row), at, self._element.memory)
            f.store(kind, self._element.load(f, kind, pointer), self._value_at(row), 4)
            f.prefetch(f.at(pointer, AHEAD_COLUMNS, self._element.memory), 3)
            return []

        f.loop(0, self._n, 1, widen)
        f.loop(0, self._n, ROWS_AT_ONCE, self._find_begins)
        result = self._reduce(self, at)
        narrow = f.value(f"fptrunc {self._wide} {result} to {kind}")
        f.store(kind, narrow, f.at("%out", at, "float"), 4)
        return []

    def _find_begins(self, first: Value, _: list[Value]) -> list[Value]:
        """Add up the masses below each of a few rows; of equal values earlier rows are below."""
        f, wide = self.function, self._wide
        rows = [f.add(first, i) for i in range(ROWS_AT_ONCE)]
        values = [self._value(row) for row in rows]

        def below(predicate: str) -> Callable[[Value, list[Value]], list[Value]]:
            def add(other: Value, sums: list[Value]) -> list[Value]:
                value, mass = self._value(other), self._mass(other)
                return [
                    self._add_if_below(total, predicate, value, mine, mass)
                    for total, mine in zip(sums, values, strict=True)
                ]

            return add

        sums = f.loop(0, first, 1, below("ole"), [(wide, wide.zero)] * ROWS_AT_ONCE)
        for j, row in enumerate(rows):
            mass = self._mass(row)
            for i in range(ROWS_AT_ONCE):
                if i != j:
                    predicate = "ole" if j < i else "olt"
                    sums[i] = self._add_if_below(sums[i], predicate, values[j], values[i], mass)
        others = f.add(first, ROWS_AT_ONCE)
        sums = f.loop(others, self._n, 1, below("olt"), [(wide, total) for total in sums])
        for row, total in zip(rows, sums, strict=True):
            f.store(wide, total, self._begin_at(row), 8)
        return []

    def trimmed_mean(self, at: Value) -> Value:
        """Average by the width between the limits."""
        del at
        f, wide = self.function, self._wide

        def add(row: Value, sums: list[Value]) -> list[Value]:
            begin, end = self._place(row)
            inner_end = f.minimum(wide, end, self._limits[1])
            inner_begin = f.maximum(wide, begin, self._limits[0])
            inside = f.value(f"fsub {wide} {inner_end}, {inner_begin}")
            width = f.maximum(wide, inside, wide.zero)
            self._count_kept(row, width)
            return [
                f.fma(wide, self._widened(row), width, sums[0]),
                f.value(f"fadd {wide} {sums[1]}, {width}"),
            ]

        total, width = f.loop(0, self._n, 1, add, [(wide, wide.zero)] * 2)
        return f.value(f"fdiv {wide} {total}, {width}")

    def median(self, at: Value) -> Value:
        """Average the two values at the limits."""
        del at
        f, wide = self.function, self._wide
        never = f.splat(wide, INFINITY)

        def look(row: Value, ends: list[Value]) -> list[Value]:
            _, end = self._place(row)
            value = self._widened(row)
            after = []
            for predicate, limit, least in zip(("oge", "ogt"), self._limits, ends, strict=True):
                reaches = f.value(f"fcmp {predicate} {wide} {end}, {limit}")
                mask = f"select {self._bits} {reaches}, {wide} {value}"
                after.append(f.minimum(wide, least, f.value(f"{mask}, {wide} {never}")))
            return after

        low, high = f.loop(0, self._n, 1, look, [(wide, never)] * 2)

        def count(row: Value, _: list[Value]) -> list[Value]:
            value = self._widened(row)
            above = f.value(f"fcmp oge {wide} {value}, {low}")
            under = f.value(f"fcmp ole {wide} {value}, {high}")
            both = f.value(f"and {self._bits} {above}, {under}")
            self._count_kept(row, f.value(f"uitofp {self._bits} {both} to {wide}"))
            return []

        f.loop(0, self._n, 1, count)
        total = f.value(f"fadd {wide} {low}, {high}")
        return f.value(f"fmul {wide} {total}, {f.splat(wide, float_literal(0.5))}")

    def _add_if_below(
        self, total: Value, predicate: str, value: Value, mine: Value, mass: Value
    ) -> Value:
        f, wide = self.function, self._wide
        is_below = f.value(f"fcmp {predicate} {self._kind} {value}, {mine}")
        added = f.value(f"fadd {wide} {total}, {mass}")
        return f.value(f"select {self._bits} {is_below}, {wide} {added}, {wide} {total}")

    def _count_kept(self, row: Value, amount: Value) -> None:
        f, wide = self.function, self._wide
        place = f.add(f.multiply(row, LANES), Figure.KEPT * self._n * LANES)
        pointer = f.at("%sums", place, "double")
        before = f.load(wide, pointer, 8)
        f.store(wide, f.value(f"fadd {wide} {before}, {amount}"), pointer, 8)

    def _place(self, row: Value) -> tuple[Value, Value]:
        """Return where the row's value begins and ends."""
        begin = self.function.load(self._wide, self._begin_at(row), 8)
        return begin, self.function.value(f"fadd {self._wide} {begin}, {self._mass(row)}")

    def _mass(self, row: Value) -> Value:
        f = self.function
        return f.splat(self._wide, f.load("double", f.at(self._masses, row, "double"), 8))

    def _value(self, row: Value) -> Value:
        return self.function.load(self._kind, self._value_at(row), 4)

    def _widened(self, row: Value) -> Value:
        return self.function.value(f"fpext {self._kind} {self._value(row)} to {self._wide}")

    def _value_at(self, row: Value) -> Value:
        f = self.function
        return f.at("%scratch", f.multiply(row, self._kind.count), "float")

    def _begin_at(self, row: Value) -> Value:
        f = self.function
        return f.at(self._begins, f.multiply(row, self._kind.count), "double")
