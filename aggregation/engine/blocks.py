"""Columns of rows as kernels take them: pointers to rows, in multiples of 16 columns.

Rows that lie apart in memory are read where they are. Rows with gaps between
their values are copied span by span, and the last few columns into a block
that zeros fill up. Between two calls of a kernel as little is done as can be:
the kernel has driven everything else out of the caches.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine.threads import SPAN_COLUMNS, over_spans

LANES = 16
"""Kernels take columns in multiples of this, on every CPU."""

SPAN_VALUES = 1 << 22
"""Values of all rows in a span, if the columns allow it: a millisecond or two."""

SPANS_MIN = 8
"""Spans that columns are cut into at least, so that threads finish together."""

SPAN_MULTIPLE = 1 << 10

CACHE_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Block:
    """Some columns of all rows, in terms of addresses.

    Attributes:
        rows: Of a table of pointers to the rows.
        start: First column there.
        stop: Column after the last; stop - start is a multiple of `LANES`.
        vector: Of column 0 of the vector.
        sums: Of the block's own sums, zero at first.
        scratch: Of memory of undefined contents that starts on a cache line.
    """

    rows: int
    start: int
    stop: int
    vector: int
    sums: int
    scratch: int


@dataclass(frozen=True, slots=True)
class Needs:
    """What a kernel asks for beside the rows.

    Attributes:
        sums: Shape of the float64 sums that it adds to.
        scratch_floats: float32 values of scratch memory.
        pointers: Least length of the table of rows; the first row fills it up.
    """

    sums: tuple[int, ...]
    scratch_floats: int
    pointers: int = 0


def over_blocks(
    rows: Sequence[Tensor],
    columns: slice,
    needs: Needs,
    work: Callable[[Block], None],
    vector: Tensor | None = None,
) -> NDArray[np.float64]:
    """Call work(block) for every block of these columns; return the sums over all of them.

    Args:
        rows: Tensors [d] of one dtype on the CPU.
        columns: start and stop given.
        needs: See there.
        work: Called from several threads at once.
        vector: float32 [d], contiguous, for work to read or to write.

    Returns:
        float64 [*needs.sums]; the same bytes for any number of threads. In the
        last block `blank_columns` of zeros are counted along.
    """
    width = columns.stop - columns.start
    if not width:
        return np.zeros(needs.sums)
    are_plain = all(row.numel() < 2 or row.stride(0) == 1 for row in rows)
    whole = columns.stop - width % LANES if are_plain else columns.start
    step = _span_columns(len(rows), width)
    first_copied = -(-(whole - columns.start) // step)
    sums = np.zeros((first_copied - (whole - columns.stop) // step, *needs.sums))
    sums_at, nbytes = sums.ctypes.data, 8 * math.prod(needs.sums)
    table = _table(rows, needs.pointers)
    rows_at = table.ctypes.data
    vector_at = 0 if vector is None else vector.data_ptr()

    def plain(first: int, end: int) -> None:
        place = sums_at + nbytes * ((first - columns.start) // step)
        work(Block(rows_at, first, end, vector_at, place, scratch(needs.scratch_floats)))

    def copied(first: int, end: int) -> None:
        place = sums_at + nbytes * (first_copied + (first - whole) // step)
        copies = [_filled_up(row[first:end]) for row in rows]
        pointers = _table(copies, needs.pointers)
        memory, stop = scratch(needs.scratch_floats), len(copies[0])
        if vector is None:
            work(Block(pointers.ctypes.data, 0, stop, 0, place, memory))
            return
        part = _filled_up(vector[first:end])
        work(Block(pointers.ctypes.data, 0, stop, part.data_ptr(), place, memory))
        vector[first:end] = part[: end - first]

    over_spans(plain, columns.start, whole, step)
    over_spans(copied, whole, columns.stop, step)
    total: NDArray[np.float64] = sums.sum(axis=0)
    return total


def blank_columns(columns: slice) -> int:
    """Return how many columns of zeros fill up the last block."""
    width: int = columns.stop - columns.start
    return -width % LANES


def _span_columns(n: int, width: int) -> int:
    """Return the columns of a span, a multiple of every tile, whatever the number of threads."""
    columns = min(SPAN_VALUES // n, -(-width // SPANS_MIN))
    return max(SPAN_COLUMNS, -(-columns // SPAN_MULTIPLE) * SPAN_MULTIPLE)


def scratch(floats: int) -> int:
    """Return the address of float32 memory that is the thread's own until it asks again.

    It is kept from call to call: touching fresh memory for the first time
    would cost as much as the work in it.
    """
    if floats > _kept.floats:
        _kept.memory = np.empty(floats + CACHE_LINE_BYTES // 4, np.float32)
        _kept.address = -(-_kept.memory.ctypes.data // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
        _kept.floats = floats
    return _kept.address


class _Kept(threading.local):
    floats = 0
    address = 0
    memory = np.empty(0, np.float32)


_kept = _Kept()


def _filled_up(values: Tensor) -> Tensor:
    """Return a copy that zeros fill up to a multiple of `LANES`."""
    copy = values.new_zeros(-(-len(values) // LANES) * LANES)
    copy[: len(values)] = values
    return copy


def _table(rows: Sequence[Tensor], length: int) -> NDArray[np.int64]:
    addresses = [row.data_ptr() for row in rows]
    return np.array(addresses + addresses[:1] * (length - len(addresses)), np.int64)
