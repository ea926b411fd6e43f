"""The kernel of the coordinate-wise rules: one read of the rows, one write of the result.

Columns are taken in tiles. Groups of rows are sorted in vector registers into
a scratch tile, merged there, and the kept values averaged in float64. While
the tile is in the cache the same rows are read again for the report: how often
each lies within the kept range, how far it is from the result, and how long it
is (so the gate needs no pass of its own). `order_statistics` calls this
through `bands`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.blocks import LANES
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.networks import Exchange, Selection

PADDING = 16
"""Extra float32 in a scratch row: rows of equal size would all fall into the same cache sets."""

STATISTICS = 3
"""Per row: squared distance to the result, squared length, columns within the kept range."""

ARGUMENTS = {
    "rows": "ptr",
    "start": "i64",
    "stop": "i64",
    "out": "ptr",
    "scratch": "ptr",
    "statistics": "ptr",
}


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the kernel is laid out for a CPU and n.

    Attributes:
        lanes: float32 lanes of a vector register.
        width: Columns of a tile.
        rows_at_once: Rows whose statistics stay in registers together.
    """

    lanes: int
    width: int
    rows_at_once: int

    @property
    def stride(self) -> int:
        """float32 values from one scratch row to the next."""
        return self.width + PADDING


def scratch_floats(n: int, tiling: Tiling) -> int:
    """Return the float32 values of scratch memory that a call needs."""
    return (n + 2) * tiling.stride


def band_assembly(name: str, selection: Selection, element: Element, tiling: Tiling) -> str:
    """Return the kernel as LLVM assembly; its arguments are `ARGUMENTS`.

    rows points to n pointers, out and statistics are float32 and
    double[STATISTICS][n][LANES], which is added to. stop - start is a multiple
    of `LANES`.
    """
    return _BandKernel(name, selection, element, tiling).text()


def report_assembly(name: str, n: int, element: Element, tiling: Tiling) -> str:
    """Return a kernel like that of `band_assembly` that only looks at rows and result.

    `out` is read, not written, and no columns are counted as kept.
    """
    f = Function(name, ARGUMENTS)

    def tile(first: Value, _: list[Value]) -> list[Value]:
        end = f.minimum_index(f.add(first, tiling.width), "%stop")
        _Report(f, element, None, tiling.rows_at_once).emit(n, first, end)
        return []

    f.loop("%start", "%stop", tiling.width, tile)
    return f.text()


class _BandKernel:
    def __init__(self, name: str, selection: Selection, element: Element, tiling: Tiling) -> None:
        self._selection = selection
        self._network = selection.network()
        self._element = element
        self._tiling = tiling
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        self._f = Function(name, ARGUMENTS)

    def text(self) -> str:
        self._f.loop("%start", "%stop", self._tiling.width, self._tile)
        return self._f.text()

    def _tile(self, first: Value, _: list[Value]) -> list[Value]:
        f = self._f
        end = f.minimum_index(f.add(first, self._tiling.width), "%stop")
        is_one_group = len(self._network.groups) == 1
        for wires, exchanges in self._network.groups:
            self._sort_group(wires, exchanges, first, end, self._finish if is_one_group else None)
        if not is_one_group:
            f.loop(first, end, self._tiling.lanes, lambda at, _: self._merge(at, first))
        bounds = None if self._selection.is_whole else (self._scratch(0), self._scratch(1))
        report = _Report(f, self._element, bounds, self._tiling.rows_at_once)
        report.emit(self._selection.n, first, end)
        return []

    def _sort_group(
        self,
        wires: tuple[int, ...],
        exchanges: tuple[Exchange, ...],
        first: Value,
        end: Value,
        finish: Callable[[dict[int, Value], Value, Value], None] | None,
    ) -> None:
        """Sort a group of rows; ask for the same rows of the next tile."""
        f = self._f
        rows = {wire: f.pointer_at("%rows", wire) for wire in wires}

        def column(at: Value, _: list[Value]) -> list[Value]:
            held = {}
            for wire, row in rows.items():
                pointer = f.at(row, at, self._element.memory)
                held[wire] = self._element.load(f, self._kind, pointer)
                f.prefetch(f.at(pointer, self._tiling.width, self._element.memory), 2)
            self._exchange(held, exchanges)
            within = f.value(f"sub i64 {at}, {first}")
            if finish is not None:
                self._exchange(held, self._network.merge)
                finish(held, at, within)
                return []
            for wire in wires:
                f.store(self._kind, held[wire], f.at(self._scratch(wire + 2), within, "float"), 4)
            return []

        f.loop(first, end, self._tiling.lanes, column)

    def _merge(self, at: Value, first: Value) -> list[Value]:
        """Merge the sorted groups of one column vector and average it."""
        f = self._f
        within = f.value(f"sub i64 {at}, {first}")
        held = _Lazily(
            lambda wire: f.load(self._kind, f.at(self._scratch(wire + 2), within, "float"), 4)
        )
        self._exchange(held, self._network.merge)
        self._finish(held, at, within)
        return []

    def _scratch(self, row: int) -> Value:
        return self._f.at("%scratch", row * self._tiling.stride, "float")

    def _exchange(self, held: dict[int, Value], exchanges: tuple[Exchange, ...]) -> None:
        for exchange in exchanges:
            low, high = held[exchange.low], held[exchange.high]
            if exchange.keeps_low:
                held[exchange.low] = self._f.minimum(self._kind, low, high)
            if exchange.keeps_high:
                held[exchange.high] = self._f.maximum(self._kind, low, high)

    def _finish(self, held: dict[int, Value], at: Value, within: Value) -> None:
        """Average the kept values in float64 and store the result and the kept range."""
        f = self._f
        kept = [held[wire] for wire in self._network.kept]
        if self._selection.nearest is not None:
            kept = self._nearest(kept, self._selection.nearest)
        total = self._tree(kept, self._widened, lambda a, b: f.value(f"fadd {self._wide} {a}, {b}"))
        mean = self._divided(total, len(kept))
        result = f.value(f"fptrunc {self._wide} {mean} to {self._kind}")
        f.store(self._kind, result, f.at("%out", at, "float"), 4)
        if not self._selection.is_whole:
            self._store_end(kept, f.minimum, self._scratch(0), within)
            self._store_end(kept, f.maximum, self._scratch(1), within)

    def _divided(self, total: Value, count: int) -> Value:
        """Return total / count, rounded correctly, without the slow division.

        A product with the rounded reciprocal and one correction by its
        remainder give the quotient's own rounding (Markstein, "Computation of
        elementary functions on the IBM RISC System/6000 processor", 1990).
        """
        f, wide = self._f, self._wide
        inverse = f.splat(wide, float_literal(1 / count))
        guess = f.value(f"fmul {wide} {total}, {inverse}")
        if count & (count - 1) == 0:
            return guess  # exact
        remainder = f.fma(wide, f.splat(wide, float_literal(-count)), guess, total)
        return f.fma(wide, remainder, inverse, guess)

    def _store_end(
        self,
        kept: list[Value],
        choose: Callable[[Lanes, Value, Value], Value],
        row: Value,
        within: Value,
    ) -> None:
        """Store one end of the kept range."""
        end = self._tree(kept, lambda value: value, lambda a, b: choose(self._kind, a, b))
        self._f.store(self._kind, end, self._f.at(row, within, "float"), 4)

    def _nearest(self, ordered: list[Value], count: int) -> list[Value]:
        """Return the `count` values nearest to the median of the `ordered` ones.

        They are neighbours in the order, so of the ranks j, j + count, j + 2
        count, ... exactly one is among them: the one nearest to the median.
        """
        f, n = self._f, len(ordered)
        middle = [self._widened(ordered[rank]) for rank in ((n - 1) // 2, n // 2)]
        half = f.splat(self._wide, float_literal(0.5))
        total = f.value(f"fadd {self._wide} {middle[0]}, {middle[1]}")
        median = f.value(f"fmul {self._wide} {total}, {half}")
        chosen = []
        for first in range(count):
            best, gap = ordered[first], ""
            for rank in range(first + count, n, count):
                gap = gap or self._gap(best, median)
                other = self._gap(ordered[rank], median)
                is_nearer = f.value(f"fcmp olt {self._wide} {other}, {gap}")
                mask = f"select {self._kind.of('i1')} {is_nearer}"
                best = f.value(f"{mask}, {self._kind} {ordered[rank]}, {self._kind} {best}")
                gap = f.value(f"{mask}, {self._wide} {other}, {self._wide} {gap}")
            chosen.append(best)
        return chosen

    def _gap(self, value: Value, median: Value) -> Value:
        difference = self._f.value(f"fsub {self._wide} {self._widened(value)}, {median}")
        symbol = f"llvm.fabs.v{self._wide.count}f64"
        return self._f.call(self._wide, symbol, (self._wide, difference))

    def _widened(self, value: Value) -> Value:
        return self._f.value(f"fpext {self._kind} {value} to {self._wide}")

    def _tree(
        self,
        values: list[Value],
        leaf: Callable[[Value], Value],
        join: Callable[[Value, Value], Value],
    ) -> Value:
        if len(values) == 1:
            return leaf(values[0])
        middle = len(values) // 2
        return join(
            self._tree(values[:middle], leaf, join), self._tree(values[middle:], leaf, join)
        )


class _Lazily(dict[int, Value]):
    """Values that are loaded when first asked for."""

    def __init__(self, load: Callable[[int], Value]) -> None:
        super().__init__()
        self._load = load

    def __missing__(self, wire: int) -> Value:
        self[wire] = self._load(wire)
        return self[wire]


class _Report:
    """The second look at a tile: what the report says of each row."""

    def __init__(
        self, function: Function, element: Element, bounds: tuple[Value, Value] | None, rows: int
    ) -> None:
        self._f = function
        self._element = element
        self._bounds = bounds
        self._rows_at_once = rows
        self._kind = Lanes(LANES, "float")
        self._counts = self._kind.of("i32")
        self._wide = self._kind.of("double")

    def emit(self, n: int, first: Value, end: Value) -> None:
        """Add one tile to the statistics of all rows."""
        for start in range(0, n, self._rows_at_once):
            self._rows(range(start, min(start + self._rows_at_once, n)), n, first, end)

    def _rows(self, rows: range, n: int, first: Value, end: Value) -> None:
        f = self._f
        pointers = [f.pointer_at("%rows", row) for row in rows]
        kinds = (self._kind, self._kind, self._counts)[: 3 if self._bounds else 2]
        carried = [(kind, kind.zero) for _ in rows for kind in kinds]

        def column(at: Value, sums: list[Value]) -> list[Value]:
            result = f.load(self._kind, f.at("%out", at, "float"), 4)
            within = f.value(f"sub i64 {at}, {first}")
            ends = [
                f.load(self._kind, f.at(bound, within, "float"), 4) for bound in self._bounds or ()
            ]
            after: list[Value] = []
            for i, pointer in enumerate(pointers):
                value = self._element.load(f, self._kind, f.at(pointer, at, self._element.memory))
                before = sums[i * len(kinds) : (i + 1) * len(kinds)]
                after += self._look(value, result, ends, before)
            return after

        sums = f.loop(first, end, LANES, column, carried)
        for i, row in enumerate(rows):
            for which, kind in enumerate(kinds):
                self._add(sums[i * len(kinds) + which], kind, (which * n + row) * LANES)

    def _look(
        self, value: Value, result: Value, ends: list[Value], sums: list[Value]
    ) -> list[Value]:
        f = self._f
        gap = f.value(f"fsub {self._kind} {value}, {result}")
        after = [
            f.fma(self._kind, gap, gap, sums[0]),
            f.fma(self._kind, value, value, sums[1]),
        ]
        if ends:
            bits = self._kind.of("i1")
            above = f.value(f"fcmp oge {self._kind} {value}, {ends[0]}")
            below = f.value(f"fcmp ole {self._kind} {value}, {ends[1]}")
            both = f.value(f"and {bits} {above}, {below}")
            ones = f.value(f"sext {bits} {both} to {self._counts}")
            after.append(f.value(f"sub {self._counts} {sums[2]}, {ones}"))
        return after

    def _add(self, total: Value, kind: Lanes, offset: int) -> None:
        f = self._f
        widen = "fpext" if kind.element == "float" else "uitofp"
        wide = f.value(f"{widen} {kind} {total} to {self._wide}")
        pointer = f.at("%statistics", offset, "double")
        before = f.load(self._wide, pointer, 8)
        f.store(self._wide, f.value(f"fadd {self._wide} {before}, {wide}"), pointer, 8)
