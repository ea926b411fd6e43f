"""The kernel of bands of ranks among many rows: `band_kernel` for any number of them.

`many_bands` and `mixtures` call this.
"""

from collections.abc import Sequence

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.merge_kernel import GIVEN, MergeSort
from pliska.aggregation.engine.report_kernel import Figure, Report
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import Tiling


def many_band_function(
    name: str, element: Element, tiling: Tiling, figures: Sequence[Figure]
) -> Function:
    """Return the kernel that averages a band; its arguments are `sharing.ARGUMENTS`.

    Given are, after what `merge_kernel.GIVEN` says, address and number of the wires whose
    values are averaged.
    """
    return _ManyBandKernel(name, element, tiling, figures).function


class _ManyBandKernel:
    def __init__(
        self, name: str, element: Element, tiling: Tiling, figures: Sequence[Figure]
    ) -> None:
        self._kind = Lanes(tiling.lanes, "float")
        self._wide = self._kind.of("double")
        f = self.function = Function(name, ARGUMENTS)
        self._sort = MergeSort(f, element, tiling)
        self._kept_at = f.pointer_at("%given", GIVEN)
        self._kept = self._sort.number_given(GIVEN + 1)
        self._ends = ("%scratch", f.at("%scratch", tiling.width, "float"))
        report = Report(f, element, figures, tiling.rows_at_once, self._ends)
        self._sort.emit(self._finish, report)

    def _finish(self, at: Value, within: Value) -> None:
        """Average the kept values in float64 and store the result and the kept range."""
        f, kind, wide = self.function, self._kind, self._wide

        def add(number: Value, carried: list[Value]) -> list[Value]:
            value = self._sort.value(self._sort.wire_at(self._kept_at, number), within)
            total, least, largest = carried
            widened = f.value(f"fpext {kind} {value} to {wide}")
            return [
                f.value(f"fadd {wide} {total}, {widened}"),
                f.minimum(kind, value, least),
                f.maximum(kind, value, largest),
            ]

        bounds = [f.splat(kind, float_literal(end)) for end in (float("inf"), float("-inf"))]
        start = [(wide, wide.zero), *((kind, bound) for bound in bounds)]
        total, least, largest = f.loop(0, self._kept, 1, add, start)
        count = f.splat(wide, f.value(f"sitofp i64 {self._kept} to double"))
        mean = f.value(f"fdiv {wide} {total}, {count}")
        f.store(kind, f.value(f"fptrunc {wide} {mean} to {kind}"), f.at("%out", at, "float"), 4)
        for row, value in zip(self._ends, (least, largest), strict=True):
            f.store(kind, value, f.at(row, within, "float"), 4)
