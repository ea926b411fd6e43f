"""The kernel of pre-aggregators: means of sets of rows, a few thousand columns at a time.

Sets that overlap share their sums: rows are taken in fours, all 16 partial sums
of four are formed, and each mean adds up one of them for every four ("the four
Russians"). For n sets of n rows that is a quarter of the additions. The means
are written into a block that stays in the cache, where the kernel of the
coordinate-wise rules reads them: they are never built whole. `mixtures` calls
this.
"""

from pliska.aggregation.engine.assembly import Function, Lanes, Value
from pliska.aggregation.engine.elements import Element

ROWS_AT_ONCE = 4
SUBSETS = 1 << ROWS_AT_ONCE

OUTPUTS_AT_ONCE = 4
"""Outputs come in multiples of this: so many sums are in flight together."""

AHEAD_COLUMNS = 128
"""How far ahead rows are asked for."""

ARGUMENTS = {
    "rows": "ptr",
    "places": "ptr",
    "scales": "ptr",
    "outputs": "i64",
    "width": "i64",
    "table": "ptr",
    "block": "ptr",
    "stride": "i64",
}


def table_floats(groups: int, lanes: int) -> int:
    """Return the float32 values of scratch memory that hold the partial sums."""
    return 2 * groups * SUBSETS * lanes


def mix_assembly(name: str, element: Element, lanes: int, groups: int) -> str:
    """Return the kernel as LLVM assembly; its arguments are `ARGUMENTS`.

    rows holds groups * ROWS_AT_ONCE pointers. table[g][subset] (double[lanes])
    are the partial sums, a subset having a bit for each row of its group, and
    places[k][g] (i64) says at which double those that belong to output k
    start. block (float32 [outputs][stride]) gets their sum times scales[k].
    width is a multiple of `blocks.LANES`.
    """
    return _MixKernel(name, element, lanes, groups).text()


class _MixKernel:
    def __init__(self, name: str, element: Element, lanes: int, groups: int) -> None:
        self._element = element
        self._groups = groups
        self._kind = Lanes(lanes, "float")
        self._wide = self._kind.of("double")
        self._f = Function(name, ARGUMENTS)

    def text(self) -> str:
        self._f.loop(0, "%width", self._kind.count, self._column)
        return self._f.text()

    def _column(self, at: Value, _: list[Value]) -> list[Value]:
        for group in range(self._groups):
            self._subsets(group, at)
        self._f.loop(0, "%outputs", OUTPUTS_AT_ONCE, lambda output, _: self._means(output, at))
        return []

    def _subsets(self, group: int, at: Value) -> None:
        f = self._f
        sums = [self._wide.zero]
        for i in range(ROWS_AT_ONCE):
            row = f.pointer_at("%rows", group * ROWS_AT_ONCE + i)
            pointer = f.at(row, at, self._element.memory)
            f.prefetch(f.at(pointer, AHEAD_COLUMNS, self._element.memory), 3)
            value = self._element.load(f, self._kind, pointer)
            wide = f.value(f"fpext {self._kind} {value} to {self._wide}")
            sums += [wide, *(self._added(total, wide) for total in sums[1:])]
        for subset, total in enumerate(sums):
            place = (group * SUBSETS + subset) * self._kind.count
            f.store(self._wide, total, f.at("%table", place, "double"), 8)

    def _means(self, output: Value, at: Value) -> list[Value]:
        f = self._f
        for k in [f.add(output, i) for i in range(OUTPUTS_AT_ONCE)]:
            places = f.at("%places", f.multiply(k, self._groups), "i64")
            parts = []
            for group in range(self._groups):
                place = f.load("i64", f.at(places, group, "i64"), 8)
                parts.append(f.load(self._wide, f.at("%table", place, "double"), 8))
            while len(parts) > 1:
                parts = [
                    self._added(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i]
                    for i in range(0, len(parts), 2)
                ]
            scale = f.splat(self._wide, f.load("double", f.at("%scales", k, "double"), 8))
            scaled = f.value(f"fmul {self._wide} {parts[0]}, {scale}")
            mean = f.value(f"fptrunc {self._wide} {scaled} to {self._kind}")
            place = f.add(f.multiply(k, "%stride"), at)
            f.store(self._kind, mean, f.at("%block", place, "float"), 4)
        return []

    def _added(self, a: Value, b: Value) -> Value:
        return self._f.value(f"fadd {self._wide} {a}, {b}")
