"""The kernel that ends every distance rule: one weighted sum of rows, in float64.

The number of rows is an argument, so one kernel per dtype serves all. Rows are
added in their order: the bytes do not depend on the CPU. `sums` calls this.
"""

from pliska.aggregation.engine.assembly import Function, Lanes, Value
from pliska.aggregation.engine.elements import Element

ROWS_AT_ONCE = 4
"""Rows are given in multiples of this, so that partial sums are stored less often."""

TILE_COLUMNS = 512

ARGUMENTS = {
    "rows": "ptr",
    "weights": "ptr",
    "count": "i64",
    "start": "i64",
    "stop": "i64",
    "out": "ptr",
    "scratch": "ptr",
}


def sum_assembly(name: str, element: Element, lanes: int) -> str:
    """Return the kernel as LLVM assembly; its arguments are `ARGUMENTS`.

    out[start:stop] (float32) is the sum over i < count of weights[i] (double)
    times rows[i]. scratch holds double[TILE_COLUMNS]; stop - start is a
    multiple of `blocks.LANES` and count one of `ROWS_AT_ONCE`.
    """
    f = Function(name, ARGUMENTS)
    narrow = Lanes(lanes, "float")
    wide = narrow.of("double")

    def tile(first: Value, _: list[Value]) -> list[Value]:
        end = f.minimum_index(f.add(first, TILE_COLUMNS), "%stop")
        width = f.value(f"sub i64 {end}, {first}")

        def clear(at: Value, _: list[Value]) -> list[Value]:
            f.store(wide, wide.zero, f.at("%scratch", at, "double"), 8)
            return []

        def rows(row: Value, _: list[Value]) -> list[Value]:
            numbers = [f.add(row, i) for i in range(ROWS_AT_ONCE)]
            starts = [f.at(f.pointer_at("%rows", i), first, element.memory) for i in numbers]
            weights = [
                f.splat(wide, f.load("double", f.at("%weights", i, "double"), 8)) for i in numbers
            ]

            def column(at: Value, _: list[Value]) -> list[Value]:
                place = f.at("%scratch", at, "double")
                total = f.load(wide, place, 8)
                for start, weight in zip(starts, weights, strict=True):
                    pointer = f.at(start, at, element.memory)
                    f.prefetch(f.at(pointer, TILE_COLUMNS, element.memory), 3)
                    value = element.load(f, narrow, pointer)
                    widened = f.value(f"fpext {narrow} {value} to {wide}")
                    total = f.fma(wide, widened, weight, total)
                f.store(wide, total, place, 8)
                return []

            f.loop(0, width, lanes, column)
            return []

        def finish(at: Value, _: list[Value]) -> list[Value]:
            total = f.load(wide, f.at("%scratch", at, "double"), 8)
            rounded = f.value(f"fptrunc {wide} {total} to {narrow}")
            f.store(narrow, rounded, f.at("%out", f.add(first, at), "float"), 4)
            return []

        f.loop(0, width, lanes, clear)
        f.loop(0, "%count", ROWS_AT_ONCE, rows)
        f.loop(0, width, lanes, finish)
        return []

    f.loop("%start", "%stop", TILE_COLUMNS, tile)
    return f.text()
