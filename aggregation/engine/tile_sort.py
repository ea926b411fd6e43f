"""Sorting the columns of a tile of rows in vector registers.

Columns are taken in tiles. Rows are sorted in groups that fit the registers;
if there are several, the sorted groups go into a scratch tile and are merged
there. Whoever sorts gets the wanted ranks of one vector of columns after the
other, in registers. `band_kernel` and `near_kernel` use this.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pliska.aggregation.engine.assembly import Function, Lanes, Value
from pliska.aggregation.engine.compiler import Host
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.networks import Exchange, Network

PADDING = 16
"""Extra float32 in a scratch row: rows of equal size would all fall into the same cache sets."""

TILE_COLUMNS = 256

AHEAD_COLUMNS = 128
"""How far ahead rows in memory are asked for: long enough before, and not yet evicted again."""

Finish = Callable[[list[Value], Value, Value], None]
"""Takes the kept values of the columns at `at`, which are `within` in the tile."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """How kernels that reduce columns are laid out for a CPU.

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

    def counted(self, n: int) -> int:
        """Return n filled up to a multiple of `rows_at_once`."""
        return -(-n // self.rows_at_once) * self.rows_at_once


def tiling(target: Host) -> Tiling:
    """Return the layout of these kernels on a CPU."""
    return Tiling(target.lanes, TILE_COLUMNS, rows_at_once=4 if target.registers > 16 else 2)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rows of a kernel come from.

    Attributes:
        element: Their element type.
        is_near: Whether they are in the first cache already.
    """

    element: Element
    is_near: bool = False


class TileSort:
    """Emits the sorting of a tile.

    Args:
        function: To emit into; its arguments are `sharing.ARGUMENTS`.
        network: What to do.
        source: Of the rows.
        tiling: The layout.
        scratch: Address of network.n scratch rows.
    """

    def __init__(
        self, function: Function, network: Network, source: Source, tiling: Tiling, scratch: Value
    ) -> None:
        self._f = function
        self._network = network
        self._source = source
        self._tiling = tiling
        self._base = scratch
        self._kind = Lanes(tiling.lanes, "float")

    def emit(self, first: Value, end: Value, finish: Finish) -> None:
        """Sort the columns first..end and finish each vector of them."""
        groups = self._network.groups
        if len(groups) == 1:
            self._sort_group(*groups[0], first, end, finish)
            return
        for wires, exchanges in groups:
            self._sort_group(wires, exchanges, first, end, None)
        lanes = self._tiling.lanes
        self._f.loop(first, end, lanes, lambda at, _: self._merge(at, first, finish))

    def _sort_group(
        self,
        wires: tuple[int, ...],
        exchanges: tuple[Exchange, ...],
        first: Value,
        end: Value,
        finish: Finish | None,
    ) -> None:
        """Sort a group of rows; without `finish` it goes into the scratch tile."""
        f, element = self._f, self._source.element
        rows = {wire: f.pointer_at("%rows", wire) for wire in wires}

        def column(at: Value, _: list[Value]) -> list[Value]:
            held = {}
            for wire, row in rows.items():
                pointer = f.at(row, at, element.memory)
                held[wire] = element.load(f, self._kind, pointer)
                if not self._source.is_near:
                    f.prefetch(f.at(pointer, AHEAD_COLUMNS, element.memory), 3)
            self._exchange(held, exchanges)
            within = f.value(f"sub i64 {at}, {first}")
            if finish is not None:
                self._finish(held, at, within, finish)
                return []
            for wire in wires:
                f.store(self._kind, held[wire], self._place(wire, within), 4)
            return []

        f.loop(first, end, self._tiling.lanes, column)

    def _merge(self, at: Value, first: Value, finish: Finish) -> list[Value]:
        """Merge the sorted groups of one vector of columns."""
        within = self._f.value(f"sub i64 {at}, {first}")
        held = _Lazily(lambda wire: self._f.load(self._kind, self._place(wire, within), 4))
        self._finish(held, at, within, finish)
        return []

    def _finish(self, held: dict[int, Value], at: Value, within: Value, finish: Finish) -> None:
        self._exchange(held, self._network.merge)
        finish([held[wire] for wire in self._network.kept], at, within)

    def _place(self, row: int, within: Value) -> Value:
        scratch = self._f.at(self._base, row * self._tiling.stride, "float")
        return self._f.at(scratch, within, "float")

    def _exchange(self, held: dict[int, Value], exchanges: tuple[Exchange, ...]) -> None:
        for exchange in exchanges:
            low, high = held[exchange.low], held[exchange.high]
            if exchange.keeps_low:
                held[exchange.low] = self._f.minimum(self._kind, low, high)
            if exchange.keeps_high:
                held[exchange.high] = self._f.maximum(self._kind, low, high)


class _Lazily(dict[int, Value]):
    """Values that are loaded when first asked for."""

    def __init__(self, load: Callable[[int], Value]) -> None:
        super().__init__()
        self._load = load

    def __missing__(self, wire: int) -> Value:
        self[wire] = self._load(wire)
        return self[wire]
