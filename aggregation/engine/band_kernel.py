"""The kernel of bands of ranks: one read of the rows, one write of the result.

Each tile is sorted (`tile_sort`), the kept values are averaged in float64, and
the same rows looked at again while they are in the cache (`report_kernel`).
`bands` and `mixtures` call this.
"""

from collections.abc import Callable, Sequence

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.networks import Selection, band_network
from pliska.aggregation.engine.report_kernel import Figure, Report
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import Source, TileSort, Tiling

ENDS = 2
"""Scratch rows beside those of the sort: the ends of the kept range."""


def band_function(
    name: str, selection: Selection, source: Source, tiling: Tiling, figures: Sequence[Figure]
) -> Function:
    """Return the kernel that averages a band; its arguments are `sharing.ARGUMENTS`.

    The kept range is not counted where it holds every value.
    """
    return _BandKernel(name, selection, source, tiling, figures).function


def divided(function: Function, wide: Lanes, total: Value, count: int) -> Value:
    """Return total / count, rounded correctly, without the slow division.

    A product with the rounded reciprocal and one correction by its remainder
    give the quotient's own rounding (Markstein, "Computation of elementary
    functions on the IBM RISC System/6000 processor", 1990).
    """
    inverse = function.splat(wide, float_literal(1 / count))
    guess = function.value(f"fmul {wide} {total}, {inverse}")
    if count & (count - 1) == 0:
        return guess  # exact
    remainder = function.fma(wide, function.splat(wide, float_literal(-count)), guess, total)
    return function.fma(wide, remainder, inverse, guess)


class _BandKernel:
    def __init__(
        self,
        name: str,
        selection: Selection,
        source: Source,
        tiling: Tiling,
        figures: Sequence[Figure],
    ) -> None:
        self._tiling = tiling
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        self._is_whole = selection.is_whole
        self._n = selection.n
        f = self.function = Function(name, ARGUMENTS)
        network = band_network(selection.n, selection.band)
        self._sort = TileSort(f, network, source, tiling, self._row(ENDS))
        counted = [each for each in figures if not (self._is_whole and each is Figure.KEPT)]
        bounds = (self._row(0), self._row(1))
        self._report = Report(f, source.element, counted, tiling.rows_at_once, bounds)
        f.loop("%start", "%stop", tiling.width, self._tile)

    def _tile(self, first: Value, _: list[Value]) -> list[Value]:
        end = self.function.minimum_index(self.function.add(first, self._tiling.width), "%stop")
        self._sort.emit(first, end, self._finish)
        self._report.emit(self._n, first, end)
        return []

    def _row(self, row: int) -> Value:
        return self.function.at("%scratch", row * self._tiling.stride, "float")

    def _finish(self, kept: list[Value], at: Value, within: Value) -> None:
        """Average the kept values in float64 and store the result and the kept range."""
        f, kind, wide = self.function, self._kind, self._wide
        total = _tree(
            kept,
            lambda value: f.value(f"fpext {kind} {value} to {wide}"),
            lambda a, b: f.value(f"fadd {wide} {a}, {b}"),
        )
        mean = divided(f, wide, total, len(kept))
        result = f.value(f"fptrunc {wide} {mean} to {kind}")
        f.store(kind, result, f.at("%out", at, "float"), 4)
        if not self._is_whole:
            self._store_end(kept, f.minimum, self._row(0), within)
            self._store_end(kept, f.maximum, self._row(1), within)

    def _store_end(
        self,
        kept: list[Value],
        choose: Callable[[Lanes, Value, Value], Value],
        row: Value,
        within: Value,
    ) -> None:
        """Store one end of the kept range."""
        end = _tree(kept, lambda value: value, lambda a, b: choose(self._kind, a, b))
        self.function.store(self._kind, end, self.function.at(row, within, "float"), 4)


def _tree(
    values: list[Value], leaf: Callable[[Value], Value], join: Callable[[Value, Value], Value]
) -> Value:
    if len(values) == 1:
        return leaf(values[0])
    middle = len(values) // 2
    return join(_tree(values[:middle], leaf, join), _tree(values[middle:], leaf, join))
