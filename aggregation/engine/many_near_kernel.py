"""The kernel of means around the median among many rows: `near_kernel` for any number of them.

`many_bands` and `mixtures` call this.
"""

from collections.abc import Sequence

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.merge_kernel import GIVEN, MergeSort
from pliska.aggregation.engine.nearest_sum import NearestSum
from pliska.aggregation.engine.report_kernel import Figure, Report
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import Tiling


def many_near_function(
    name: str, element: Element, tiling: Tiling, figures: Sequence[Figure]
) -> Function:
    """Return the kernel that averages the nearest; its arguments are `sharing.ARGUMENTS`.

    Given are, after what `merge_kernel.GIVEN` says, how many values are averaged; the wires of
    the two middle values; address and number of the ends of all runs of so many neighbours in
    the order: pairs of wires (i32).
    """
    return _ManyNearKernel(name, element, tiling, figures).function


class _ManyNearKernel:
    def __init__(
        self, name: str, element: Element, tiling: Tiling, figures: Sequence[Figure]
    ) -> None:
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        f = self.function = Function(name, ARGUMENTS)
        self._sort = sort = MergeSort(f, element, tiling)
        count, *self._middle = (sort.number_given(GIVEN + i) for i in range(3))
        self._runs_at, self._runs = f.pointer_at("%given", GIVEN + 3), sort.number_given(GIVEN + 4)
        self._count = f.splat(self._wide, f.value(f"sitofp i64 {count} to double"))
        self._nearest = NearestSum(f, element, tiling, sort.rows, sort.counted)
        looked_at = [figure for figure in figures if figure is not Figure.KEPT]
        sort.emit(self._finish, Report(f, element, looked_at, tiling.rows_at_once))

    def _finish(self, at: Value, within: Value) -> None:
        """Average the values of one vector of columns and count whose they are."""
        f, wide = self.function, self._wide
        low, high = (self._widened(wire, within) for wire in self._middle)
        half = f.splat(wide, float_literal(0.5))
        median = f.value(f"fmul {wide} {f.value(f'fadd {wide} {low}, {high}')}, {half}")
        total = self._nearest.emit(median, self._border(median, within), self._count, at)
        mean = f.value(f"fdiv {wide} {total}, {self._count}")
        result = f.value(f"fptrunc {wide} {mean} to {self._kind}")
        f.store(self._kind, result, f.at("%out", at, "float"), 4)

    def _border(self, median: Value, within: Value) -> Value:
        """Return how near the farther end of the nearest run is; see `near_kernel`."""
        f, wide, sort = self.function, self._wide, self._sort

        def nearer(run: Value, border: list[Value]) -> list[Value]:
            pair = f.multiply(run, 2)
            wires = (sort.wire_at(self._runs_at, f.add(pair, i)) for i in range(2))
            gaps = [self._nearest.gap(self._widened(wire, within), median) for wire in wires]
            return [f.minimum(wide, border[0], f.maximum(wide, *gaps))]

        farthest = f.splat(wide, float_literal(float("inf")))
        return f.loop(0, self._runs, 1, nearer, [(wide, farthest)])[0]

    def _widened(self, wire: Value, within: Value) -> Value:
        value = self._sort.value(wire, within)
        return self.function.value(f"fpext {self._kind} {value} to {self._wide}")
