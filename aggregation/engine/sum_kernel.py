"""The kernels that end every distance rule: one weighted sum of rows in float64, or a copy.

The number of rows is an argument, so one kernel per dtype serves all. Rows are
added in their order: the bytes do not depend on the CPU. `sums` calls this.
"""

from pliska.aggregation.engine.assembly import Function, Lanes, Value
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.sharing import ARGUMENTS

ROWS_AT_ONCE = 4
"""Rows that are added together, so that partial sums are stored less often."""

TILE_COLUMNS = 512


def copy_assembly(name: str, element: Element, lanes: int) -> str:
    """Return the kernel that writes the first row to `out`; it takes `sharing.ARGUMENTS`."""
    f = Function(name, ARGUMENTS)
    kind, row = Lanes(lanes, "float"), f.pointer_at("%rows", 0)

    def column(at: Value, _: list[Value]) -> list[Value]:
        value = element.load(f, kind, f.at(row, at, element.memory))
        f.store(kind, value, f.at("%out", at, "float"), 4)
        return []

    f.loop("%start", "%stop", lanes, column)
    return f.text()


def sum_assembly(name: str, element: Element, lanes: int) -> str:
    """Return the kernel as LLVM assembly; its arguments are `sharing.ARGUMENTS`.

    out[start:stop] is the sum over i < count of weights[i] times rows[i]. Given
    are count and the address of the weights (double). scratch holds
    double[TILE_COLUMNS].
    """
    f = Function(name, ARGUMENTS)
    count, weights_at = f.load("i64", "%given", 8), f.pointer_at("%given", 1)
    narrow = Lanes(lanes, "float")
    wide = narrow.of("double")

    def tile(first: Value, _: list[Value]) -> list[Value]:
        end = f.minimum_index(f.add(first, TILE_COLUMNS), "%stop")
        width = f.value(f"sub i64 {end}, {first}")

        def clear(at: Value, _: list[Value]) -> list[Value]:
            f.store(wide, wide.zero, f.at("%scratch", at, "double"), 8)
            return []

        def add(row: Value, at_once: int) -> list[Value]:
            numbers = [f.add(row, i) for i in range(at_once)]
            starts = [f.at(f.pointer_at("%rows", i), first, element.memory) for i in numbers]
            weights = [
                f.splat(wide, f.load("double", f.at(weights_at, i, "double"), 8)) for i in numbers
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

        whole = f.value(f"and i64 {count}, -{ROWS_AT_ONCE}")
        f.loop(0, width, lanes, clear)
        f.loop(0, whole, ROWS_AT_ONCE, lambda row, _: add(row, ROWS_AT_ONCE))
        f.loop(whole, count, 1, lambda row, _: add(row, 1))
        f.loop(0, width, lanes, finish)
        return []

    f.loop("%start", "%stop", TILE_COLUMNS, tile)
    return f.text()
