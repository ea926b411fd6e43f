"""The kernel of pre-aggregators: means of sets of rows, a tile of columns at a time.

Sets that overlap share their sums: rows are taken in fours, all 16 partial sums
of four are formed, and each mean adds up one of them for every four ("the four
Russians"). For n sets of n rows that is a quarter of the additions. The means
are written into a tile that stays in the cache, where a kernel of the
coordinate-wise rules reduces them; then the rows themselves are compared with
the result. The mixed rows are never built whole. `mixtures` calls this.
"""

from dataclasses import dataclass

from pliska.aggregation.engine.assembly import Function, Lanes, Value, module
from pliska.aggregation.engine.blocks import LANES
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.merge_sort import in_groups
from pliska.aggregation.engine.report_kernel import Figure, report_function
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import AHEAD_COLUMNS, Tiling

GIVEN = 4
"""Numbers that the kernel is given for itself."""

ROWS_AT_ONCE = 4
SUBSETS = 1 << ROWS_AT_ONCE

OUTPUTS_AT_ONCE = 4
"""Outputs come in multiples of this: so many sums are in flight together."""

MIX_ARGUMENTS = {
    "rows": "ptr",
    "start": "i64",
    "stop": "i64",
    "table": "ptr",
    "mixed": "ptr",
    "centre": "i64",
    "places": "ptr",
    "scales": "ptr",
}


@dataclass(frozen=True, slots=True)
class MixTiling:
    """How mixing n rows to m means is laid out.

    Attributes:
        n: Rows.
        m: Means.
        tiling: Of the columns.
    """

    n: int
    m: int
    tiling: Tiling

    @property
    def groups(self) -> int:
        """Groups of rows whose partial sums are formed; the table of rows fills up the last."""
        return -(-self.n // ROWS_AT_ONCE)

    @property
    def rows_looked_at(self) -> int:
        """Rows of which statistics are formed, with those that fill up the table."""
        return self.groups * ROWS_AT_ONCE

    @property
    def outputs(self) -> int:
        """Means, with those that fill up the last `OUTPUTS_AT_ONCE`."""
        return -(-self.m // OUTPUTS_AT_ONCE) * OUTPUTS_AT_ONCE

    @property
    def pointers(self) -> int:
        """Pointers to means that the reduction may follow; it has no use for those from m on."""
        return in_groups(self.m)

    @property
    def mixed_floats(self) -> int:
        """float32 values of a tile of means."""
        return self.outputs * self.tiling.stride

    @property
    def table_floats(self) -> int:
        """float32 values of all partial sums."""
        return self.groups * SUBSETS * self.tiling.lanes

    @property
    def row_sums(self) -> int:
        """float64 sums of the rows; those of the means come after them."""
        return self.rows_looked_at * LANES

    @property
    def scratch_floats(self) -> int:
        """float32 values of scratch memory: means, partial sums, pointers to the means."""
        return self.mixed_floats + self.table_floats + 2 * self.pointers


def mixed_assembly(name: str, element: Element, layout: MixTiling, reduction: Function) -> str:
    """Return the kernel as LLVM assembly; its arguments are `sharing.ARGUMENTS`.

    rows holds groups * ROWS_AT_ONCE pointers, of which the first n count. Given
    are that number of pointers; the place of a row that is subtracted from all
    rows and added to each mean, or -1 for none; the addresses of places and
    scales; and then what reduction is given. places[k][group] (i32) says at
    which float of the partial sums the one that belongs to mean k starts, and
    their sum is multiplied by scales[k] (float). Sums are those of
    `report_kernel.report_function` of the rows, and after them those of
    reduction, the kernel that reduces the means, whose scratch memory also
    comes after that of this kernel.
    """
    tiling = layout.tiling
    mix = _MixKernel("mix", element, layout).function
    look = report_function("look", element, tiling, Figure.DISTANCE)
    f = Function(name, ARGUMENTS)
    centre = f.load("i64", f.at("%given", 1, "i64"), 8)
    places, scales = (f.pointer_at("%given", i) for i in (2, 3))
    mixed_sums = f.at("%sums", layout.row_sums, "double")
    of_reduction = f.at("%given", GIVEN, "i64")
    sort_scratch = f.at("%scratch", layout.scratch_floats, "float")
    table = f.at("%scratch", layout.mixed_floats, "float")
    means = f.at(table, layout.table_floats, "float")
    for k in range(layout.pointers):
        mean = f.at("%scratch", k % layout.m * tiling.stride, "float")
        f.store("ptr", mean, f.at(means, k, "ptr"), 8)
    kind = Lanes(tiling.lanes, "float")
    for group in range(layout.groups):
        place = f.at(table, group * SUBSETS * tiling.lanes, "float")
        f.store(kind, kind.zero, place, 4)  # the sum of no row

    def tile(first: Value, _: list[Value]) -> list[Value]:
        end = f.minimum_index(f.add(first, tiling.width), "%stop")
        width = f.value(f"sub i64 {end}, {first}")
        here = f.at("%out", first, "float")
        f.run(mix, "%rows", first, end, table, "%scratch", centre, places, scales)
        f.run(reduction, means, 0, width, here, sort_scratch, mixed_sums, of_reduction)
        f.run(look, "%rows", first, end, "%out", sort_scratch, "%sums", "%given")
        return []

    f.loop("%start", "%stop", tiling.width, tile)
    return module([mix, reduction, look, f])


class _MixKernel:
    def __init__(self, name: str, element: Element, layout: MixTiling) -> None:
        self._element = element
        self._layout = layout
        self._kind = Lanes(layout.tiling.lanes, "float")
        f = self.function = Function(name, MIX_ARGUMENTS)
        self._is_centred = f.value("icmp sge i64 %centre, 0")
        place = f.value(f"select i1 {self._is_centred}, i64 %centre, i64 0")
        self._centre = f.pointer_at("%rows", place)
        f.loop("%start", "%stop", self._kind.count, self._column)

    def _column(self, at: Value, _: list[Value]) -> list[Value]:
        f = self.function
        given = f"{self._kind} {self._loaded(self._centre, at)}"
        centre = f.value(f"select i1 {self._is_centred}, {given}, {self._kind} {self._kind.zero}")
        for group in range(self._layout.groups):
            self._subsets(group, at, centre)
        within = f.value(f"sub i64 {at}, %start")

        def means(output: Value, _: list[Value]) -> list[Value]:
            for i in range(OUTPUTS_AT_ONCE):
                self._mean(f.add(output, i), within, centre)
            return []

        f.loop(0, self._layout.outputs, OUTPUTS_AT_ONCE, means)
        return []

    def _subsets(self, group: int, at: Value, centre: Value) -> None:
        """Store the partial sums of a group; that of no row is zero and stays zero."""
        f, kind = self.function, self._kind
        sums = [""]
        for i in range(ROWS_AT_ONCE):
            row = f.pointer_at("%rows", group * ROWS_AT_ONCE + i)
            value = self._loaded(row, at)
            ahead = f.add(at, AHEAD_COLUMNS)
            f.prefetch(f.at(row, ahead, self._element.memory), 3)
            moved = f.value(f"fsub {kind} {value}, {centre}")
            sums += [moved, *(f.value(f"fadd {kind} {total}, {moved}") for total in sums[1:])]
        for subset, total in enumerate(sums[1:], start=1):
            place = (group * SUBSETS + subset) * kind.count
            f.store(kind, total, f.at("%table", place, "float"), 4)

    def _mean(self, output: Value, within: Value, centre: Value) -> None:
        f, kind = self.function, self._kind
        places = f.at("%places", f.multiply(output, self._layout.groups), "i32")
        parts = []
        for group in range(self._layout.groups):
            place = f.load("i32", f.at(places, group, "i32"), 4)
            start = f.at("%table", f.value(f"zext i32 {place} to i64"), "float")
            parts.append(f.load(kind, start, 4))
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            left_over = parts[len(parts) // 2 * 2 :]
            parts = [f.value(f"fadd {kind} {a}, {b}") for a, b in pairs] + left_over
        scale = f.splat(kind, f.load("float", f.at("%scales", output, "float"), 4))
        mean = f.fma(kind, parts[0], scale, centre)
        row = f.at("%mixed", f.multiply(output, self._layout.tiling.stride), "float")
        f.store(kind, mean, f.at(row, within, "float"), 4)

    def _loaded(self, row: Value, at: Value) -> Value:
        return self._element.load(
            self.function, self._kind, self.function.at(row, at, self._element.memory)
        )
