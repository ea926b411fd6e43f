"""Rows that are copies of others: found by what is known of them, then by comparing their bits.

Whoever mimics another worker sends its row, and rows that are all zero are not
rare. A copy need not be multiplied: its products are those of the original.
`distances` calls this. A comparison reads both rows once, and ends at the first
span of columns in which they differ.
"""

import ctypes
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from pliska.aggregation.engine.threads import over_spans

COMPARED_COLUMNS = 1 << 17
"""Columns compared in one call; shorter calls would wait for each other."""

_compare_memory = ctypes.CDLL(None).memcmp  # at the speed of memory, and others may run meanwhile
_compare_memory.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_compare_memory.restype = ctypes.c_int


def originals(rows: Sequence[Tensor], columns: slice, marks: Sequence[Hashable]) -> list[int]:
    """Return for each row the number of the row that it is a copy of, or its own.

    A row is compared with the first of its mark only, so that liars cannot make
    this cost more than one read of all rows.

    Args:
        rows: n tensors [d].
        columns: Which count; start and stop given.
        marks: Of each row; copies have equal ones.
    """
    firsts: dict[Hashable, int] = {}
    found = [firsts.setdefault(mark, i) for i, mark in enumerate(marks)]
    suspects = [i for i, first in enumerate(found) if i != first]
    pairs = [(rows[i], rows[found[i]]) for i in suspects]
    for i, is_copy in zip(suspects, are_equal(pairs, columns), strict=True):
        if not is_copy:
            found[i] = i
    return found


def are_equal(pairs: Sequence[tuple[Tensor, Tensor]], columns: slice) -> list[bool]:
    """Return of each pair of rows [d], of one dtype, whether they are equal in these columns.

    Rows on the CPU that each lie in one piece are compared bit for bit, so that
    0 and -0 differ.
    """
    if not pairs:
        return []
    if any(row.device.type != "cpu" or row.stride() != (1,) for pair in pairs for row in pair):
        return [torch.equal(one[columns], other[columns]) for one, other in pairs]
    addresses = [(one.data_ptr(), other.data_ptr(), one.element_size()) for one, other in pairs]
    differing: set[int] = set()

    def compare(first: int, end: int) -> None:
        for pair, (one, other, size) in enumerate(addresses):
            if pair not in differing and _compare_memory(
                one + first * size, other + first * size, (end - first) * size
            ):
                differing.add(pair)

    over_spans(compare, columns.start, columns.stop, COMPARED_COLUMNS)
    return [pair not in differing for pair in range(len(pairs))]
