"""The kernel of the distance rules: inner products of all rows, in one read.

Columns are taken in blocks. A block is packed first: widened to float32, less
the centre, its squared lengths added up (so the gate needs no pass of its own),
the same columns of the next block asked for. Then small tiles of products are
formed in vector registers, the upper half of the matrix only. Within a block
sums are float32; blocks are added in float64. n is an argument, so one kernel
per dtype serves all. `grams` calls this.
"""

from dataclasses import dataclass
from itertools import product

from pliska.aggregation.engine.assembly import Function, Lanes, Value
from pliska.aggregation.engine.blocks import LANES
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.sharing import ARGUMENTS

PADDING = 16
"""Extra float32 in a packed row: rows of equal size would all fall into the same cache sets."""


@dataclass(frozen=True, slots=True)
class GramTiling:
    """How the kernel is laid out for a CPU.

    Attributes:
        lanes: float32 lanes of a vector register.
        height: Rows of a tile of products.
        breadth: Columns of a tile of products; with `height` rows they fill
            the registers.
        block: Columns packed at once, which bounds how many products are
            added in float32.
    """

    lanes: int
    height: int
    breadth: int
    block: int

    @property
    def stride(self) -> int:
        """float32 values from one packed row to the next."""
        return self.block + PADDING

    @property
    def tile_sums(self) -> int:
        """float64 values that hold one tile."""
        return -(-self.height * self.breadth // self.lanes) * self.lanes

    def rows_tiled(self, n: int) -> int:
        """Return the rows that tiles of n rows reach over: so many pointers are read."""
        return max(_up(n, self.height), _up(n, self.breadth))

    def packed_floats(self, n: int) -> int:
        """Return the float32 values of scratch memory that a call needs."""
        return (n + self.rows_beyond) * self.stride

    @property
    def rows_beyond(self) -> int:
        """Rows after the last that tiles may reach over."""
        return max(self.height, self.breadth) - 1

    def tiles(self, n: int, fresh: int) -> list[tuple[int, int]]:
        """Return the (first row, first column) of every tile, in the order of the kernel."""
        return [
            (i, j)
            for i in range(0, fresh, self.height)
            for j in range(i // self.breadth * self.breadth, n, self.breadth)
        ]


def gram_tiling(lanes: int, registers: int) -> GramTiling:
    """Return the layout for a CPU with so many vector registers of so many float32 lanes."""
    height, breadth = (4, 4) if registers > 16 else (4, 3)
    return GramTiling(lanes, height, breadth, block=32 * lanes)


def gram_assembly(name: str, element: Element, tiling: GramTiling) -> str:
    """Return the kernel as LLVM assembly; its arguments are `sharing.ARGUMENTS`.

    Adds to sums the squares of the rows, double[n][LANES], and after them, as
    double[tile][tile_sums] in the order of `GramTiling.tiles`, the products of
    the first `fresh` rows with all later ones and themselves. Given (i64) are
    n, fresh, and the place of the centre in the table, or -1 for none. scratch
    holds `GramTiling.packed_floats`.
    """
    return _GramKernel(name, element, tiling).text()


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


class _GramKernel:
    def __init__(self, name: str, element: Element, tiling: GramTiling) -> None:
        self._element = element
        self._tiling = tiling
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        self._f = Function(name, ARGUMENTS)

        f = self._f
        self._n, self._fresh, centre = (
            f.load("i64", f.at("%given", i, "i64"), 8) for i in range(3)
        )
        self._tiles = f.at("%sums", f.multiply(self._n, LANES), "double")
        self._is_centred = f.value(f"icmp sge i64 {centre}, 0")
        place = f.value(f"select i1 {self._is_centred}, i64 {centre}, i64 0")
        zeros = self._packed(self._n)  # the first row after the last
        given = f"ptr {f.pointer_at('%rows', place)}, ptr {zeros}"
        self._centre = f.value(f"select i1 {self._is_centred}, {given}")

    def text(self) -> str:
        f = self._f
        f.loop(self._n, f.add(self._n, self._tiling.rows_beyond), 1, self._clear)
        f.loop("%start", "%stop", self._tiling.block, self._block)
        return f.text()

    def _clear(self, row: Value, _: list[Value]) -> list[Value]:
        """Make a row after the last zero: whatever lies there might be slow to multiply."""
        f = self._f

        def column(at: Value, _: list[Value]) -> list[Value]:
            f.store(self._kind, self._kind.zero, f.at(self._packed(row), at, "float"), 4)
            return []

        f.loop(0, self._tiling.block, self._tiling.lanes, column)
        return []

    def _block(self, first: Value, _: list[Value]) -> list[Value]:
        f, tiling = self._f, self._tiling
        end = f.minimum_index(f.add(first, tiling.block), "%stop")
        width = f.value(f"sub i64 {end}, {first}")
        offset = f.value(f"select i1 {self._is_centred}, i64 {first}, i64 0")
        centre = f.at(self._centre, offset, self._element.memory)
        f.loop(0, self._n, 1, lambda row, _: self._pack(row, first, width, centre))
        f.loop(
            0,
            self._fresh,
            tiling.height,
            lambda row, tile: [self._tile_row(row, tile[0], first, width)],
            [("i64", "0")],
        )
        return []

    def _packed(self, row: Value) -> Value:
        return self._f.at("%scratch", self._f.multiply(row, self._tiling.stride), "float")

    def _pack(self, row: Value, first: Value, width: Value, centre: Value) -> list[Value]:
        f, kind = self._f, self._kind
        source = f.at(f.pointer_at("%rows", row), first, self._element.memory)
        target = self._packed(row)

        def column(at: Value, square: list[Value]) -> list[Value]:
            value = self._element.load(f, kind, f.at(source, at, self._element.memory))
            middle = self._element.load(f, kind, f.at(centre, at, self._element.memory))
            moved = f.value(f"fsub {kind} {value}, {middle}")
            f.store(kind, moved, f.at(target, at, "float"), 4)
            return [f.fma(kind, value, value, square[0])]

        start = [(self._kind, self._kind.zero)]
        square = f.loop(0, width, self._tiling.lanes, column, start)[0]
        offset = f.multiply(row, LANES)
        self._add(square, f.at("%sums", offset, "double"))
        return []

    def _tile_row(self, row: Value, tile: Value, first: Value, width: Value) -> Value:
        """Form the tiles from the diagonal on; return the number of the tile after them.

        In a square tile on the diagonal, products left of it are left out. The first tile
        asks for the same rows of the next block: spread over the block like this, reading
        is hidden behind arithmetic.
        """
        f, tiling = self._f, self._tiling
        start = f.multiply(f.value(f"udiv i64 {row}, {tiling.breadth}"), tiling.breadth)
        following = f.add(first, tiling.block)
        ahead = [
            f.at(f.pointer_at("%rows", f.add(row, i)), following, self._element.memory)
            for i in range(tiling.height)
        ]
        left = [self._packed(f.add(row, i)) for i in range(tiling.height)]

        def right_of(column: Value) -> list[Value]:
            return [self._packed(f.add(column, j)) for j in range(tiling.breadth)]

        pairs = list(product(range(tiling.height), range(tiling.breadth)))
        if tiling.height == tiling.breadth:
            upper = [(i, j) for i, j in pairs if i <= j]
            after = self._tile(left, left, upper, tile, width, ahead)
        else:
            after = self._tile(left, right_of(start), pairs, tile, width, ahead)
        return f.loop(
            f.add(start, tiling.breadth),
            self._n,
            tiling.breadth,
            lambda column, tile: [self._tile(left, right_of(column), pairs, tile[0], width, [])],
            [("i64", after)],
        )[0]

    def _tile(
        self,
        left: list[Value],
        right: list[Value],
        pairs: list[tuple[int, int]],
        tile: Value,
        width: Value,
        ahead: list[Value],
    ) -> Value:
        """Add the products of these pairs to the tile's sums; return the number of the next tile.

        Where `right` is `left`, rows are loaded once.
        """
        f, tiling = self._f, self._tiling

        def step(at: Value, sums: list[Value]) -> list[Value]:
            for row_ahead in ahead:
                f.prefetch(f.at(row_ahead, at, self._element.memory), 2)
            a = [f.load(self._kind, f.at(pointer, at, "float"), 4) for pointer in left]
            b = a
            if right is not left:
                b = [f.load(self._kind, f.at(pointer, at, "float"), 4) for pointer in right]
            return [
                f.fma(self._kind, a[i], b[j], total)
                for (i, j), total in zip(pairs, sums, strict=True)
            ]

        formed = f.loop(0, width, tiling.lanes, step, [(self._kind, self._kind.zero)] * len(pairs))
        sums = [self._kind.zero] * (tiling.height * tiling.breadth)
        for (i, j), total in zip(pairs, formed, strict=True):
            sums[i * tiling.breadth + j] = total
        offset = f.multiply(tile, tiling.tile_sums)
        for i, lanes in enumerate(self._across(sums)):
            self._add(lanes, f.at(self._tiles, f.add(offset, i * tiling.lanes), "double"))
        return f.add(tile, 1)

    def _across(self, sums: list[Value]) -> list[Value]:
        """Return vectors whose lanes, one after the other, are the sums across each of `sums`."""
        f, lanes = self._f, self._tiling.lanes
        even = ", ".join(f"i32 {i}" for i in range(0, 2 * lanes, 2))
        odd = ", ".join(f"i32 {i}" for i in range(1, 2 * lanes, 2))
        indices = self._kind.of("i32")
        vectors = sums + [self._kind.zero] * (-len(sums) % lanes)
        remaining = lanes
        while remaining > 1:
            joined = []
            for first, second in zip(vectors[::2], vectors[1::2], strict=True):
                both = f"{self._kind} {first}, {self._kind} {second}, {indices}"
                left = f.value(f"shufflevector {both} <{even}>")
                right = f.value(f"shufflevector {both} <{odd}>")
                joined.append(f.value(f"fadd {self._kind} {left}, {right}"))
            vectors, remaining = joined, remaining // 2
        return vectors

    def _add(self, sums: Value, pointer: Value) -> None:
        f = self._f
        wide = f.value(f"fpext {self._kind} {sums} to {self._wide}")
        before = f.load(self._wide, pointer, 8)
        f.store(self._wide, f.value(f"fadd {self._wide} {before}, {wide}"), pointer, 8)
