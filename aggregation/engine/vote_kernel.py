"""The kernel of majority votes on signs: one read of the rows, one write of the result.

The number of rows is an argument, so one kernel per dtype serves all. Whoever
votes with the majority lies between two bounds that follow from it, so the rows
are looked at again as after a band of ranks (`report_kernel`). `votes` calls this.
"""

from pliska.aggregation.engine.assembly import Function, Lanes, Value, float_literal
from pliska.aggregation.engine.elements import Element
from pliska.aggregation.engine.report_kernel import Figure, Report
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.tile_sort import AHEAD_COLUMNS, Tiling

BOUNDS = 2
"""Scratch rows: the bounds of a tile."""

LEAST = 2.0**-149
"""The smallest positive float32."""


def vote_assembly(name: str, element: Element, tiling: Tiling) -> str:
    """Return the kernel as LLVM assembly; its arguments are `sharing.ARGUMENTS`.

    out is the sign of the sum of the rows' signs. Given (i64) are n, and n filled up to a
    multiple of tiling.rows_at_once, as are the table of rows and the sections of the sums.
    scratch holds float[BOUNDS][tiling.stride].
    """
    return _VoteKernel(name, element, tiling).text()


class _VoteKernel:
    def __init__(self, name: str, element: Element, tiling: Tiling) -> None:
        self._element = element
        self._tiling = tiling
        self._kind = Lanes(tiling.lanes, "float")
        self._votes = self._kind.of("i32")
        f = self._f = Function(name, ARGUMENTS)
        self._n, self._counted = (f.load("i64", f.at("%given", i, "i64"), 8) for i in range(2))
        self._bounds = tuple(f.at("%scratch", i * tiling.stride, "float") for i in range(BOUNDS))
        self._report = Report(f, element, list(Figure), tiling.rows_at_once, self._bounds)

    def text(self) -> str:
        self._f.loop("%start", "%stop", self._tiling.width, self._tile)
        return self._f.text()

    def _tile(self, first: Value, _: list[Value]) -> list[Value]:
        f = self._f
        end = f.minimum_index(f.add(first, self._tiling.width), "%stop")
        f.loop(first, end, self._tiling.lanes, lambda at, _: self._column(at, first))
        self._report.emit_groups(self._counted, self._counted, first, end)
        return []

    def _column(self, at: Value, first: Value) -> list[Value]:
        """Decide one vector of columns."""
        f, kind, votes = self._f, self._kind, self._votes

        def vote(row: Value, total: list[Value]) -> list[Value]:
            pointer = f.at(f.pointer_at("%rows", row), at, self._element.memory)
            value = self._element.load(f, kind, pointer)
            f.prefetch(f.at(pointer, AHEAD_COLUMNS, self._element.memory), 3)
            positive, negative = (
                f.value(f"zext {kind.of('i1')} {sign} to {votes}")
                for sign in (
                    f.value(f"fcmp {order} {kind} {value}, {kind.zero}") for order in ("ogt", "olt")
                )
            )
            balance = f.value(f"sub {votes} {positive}, {negative}")
            return [f.value(f"add {votes} {total[0]}, {balance}")]

        total = f.loop(0, self._n, 1, vote, [(votes, votes.zero)])[0]
        infinity = float("inf")
        f.store(kind, self._chosen(total, 1.0, -1.0), f.at("%out", at, "float"), 4)
        within = f.value(f"sub i64 {at}, {first}")
        for bound, ends in zip(self._bounds, ((LEAST, -infinity), (infinity, -LEAST)), strict=True):
            f.store(kind, self._chosen(total, *ends), f.at(bound, within, "float"), 4)
        return []

    def _chosen(self, total: Value, if_positive: float, if_negative: float) -> Value:
        """Return one of two numbers by the sign of the votes; zero for a tie."""
        f, kind = self._f, self._kind
        bits = kind.of("i1")
        chosen = kind.zero
        for order, number in (("slt", if_negative), ("sgt", if_positive)):
            decided = f.value(f"icmp {order} {self._votes} {total}, {self._votes.zero}")
            wanted = f.splat(kind, float_literal(number))
            chosen = f.value(f"select {bits} {decided}, {kind} {wanted}, {kind} {chosen}")
        return chosen
