"""Columns of rows as kernels take them: pointers to rows, in multiples of 16 columns.

Rows that lie apart in memory are read where they are. Rows with gaps between
their values are copied span by span, and the last few columns into a block
that zeros fill up. Between two calls of a kernel as little is done as can be:
the kernel has driven everything else out of the caches.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine.compiler import Host, Kernel
from pliska.aggregation.engine.sharing import Work, share_out
from pliska.aggregation.engine.threads import SPAN_COLUMNS, over_spans

LANES = 16
"""Kernels take columns in multiples of this, on every CPU."""

SPAN_VALUES = 1 << 22
"""Values of all rows in a span, if the columns allow it: a millisecond or two."""

SPANS = 32
"""Spans that columns are cut into if they are many, so that threads finish together."""

SPAN_MULTIPLE = 1 << 10

SUMS_BYTES_MAX = 1 << 22
"""Sums of spans that are kept at once, where it is enough for one a thread: many rows make many."""

CACHE_LINE_BYTES = 64
CACHE_LINE_FLOATS = CACHE_LINE_BYTES // 4


@dataclass(frozen=True, slots=True)
class Needs:
    """What a kernel asks for beside the rows.

    Attributes:
        sums: Shape of the float64 sums that it adds to.
        scratch_floats: float32 values of scratch memory.
        pointers: Least length of the table of rows; the first row fills it up.
        given: 64-bit numbers and addresses that `given` points to.
    """

    sums: tuple[int, ...]
    scratch_floats: int
    pointers: int = 0
    given: Sequence[int] = ()


def over_blocks(
    target: Host,
    kernel: Kernel,
    rows: Sequence[Tensor],
    columns: slice,
    needs: Needs,
    vector: Tensor | None = None,
) -> NDArray[np.float64]:
    """Run a kernel over these columns; return its sums over all of them.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        kernel: A function of `sharing.ARGUMENTS`.
        rows: Tensors [d] of one dtype on the CPU.
        columns: start and stop given.
        needs: See there.
        vector: float32 [d], contiguous, for the kernel to read or to write.

    Returns:
        float64 [*needs.sums]; the same bytes for any number of threads. In the
        last block `blank_columns` of zeros are counted along.
    """
    width = columns.stop - columns.start
    if not width:
        return np.zeros(needs.sums)
    step, size = _span_columns(len(rows), width), math.prod(needs.sums)
    spans = max(torch.get_num_threads(), SUMS_BYTES_MAX // (8 * max(size, 1)))
    total = np.zeros(size)
    for start in range(columns.start, columns.stop, spans * step):
        some = slice(start, min(start + spans * step, columns.stop))
        _add(span_sums(target, kernel, rows, some, needs, step, vector), total)
    return total.reshape(needs.sums)


def _add(sums: NDArray[np.float64], total: NDArray[np.float64]) -> None:
    """Add the sums of spans [spans, size] to the total [size]; they are of no use afterwards."""
    sums[0] += total  # in their order, however many are kept at once
    sums.sum(axis=0, out=total)


def span_sums(
    target: Host,
    kernel: Kernel,
    rows: Sequence[Tensor],
    columns: slice,
    needs: Needs,
    step: int,
    vector: Tensor | None = None,
) -> NDArray[np.float64]:
    """Run a kernel over these columns; return its sums over each span of them.

    Args:
        target: As of `over_blocks`, as are the others.
        kernel: As well.
        rows: As well.
        columns: Not empty.
        needs: As well.
        step: Columns of a span; the last one may have fewer, or be two where the
            columns end within a block.
        vector: As well.

    Returns:
        float64 [spans, values of needs.sums]; the same bytes for any number of threads.
    """
    width = columns.stop - columns.start
    whole = columns.stop - width % LANES if _are_plain(rows) else columns.start
    plain = -(-(whole - columns.start) // step)
    sums = _zeros(plain - (whole - columns.stop) // step, math.prod(needs.sums))
    if plain:
        _run(target, kernel, rows, slice(columns.start, whole), step, needs, vector, sums)
    if whole < columns.stop:
        _run_on_copies(kernel, rows, slice(whole, columns.stop), step, needs, vector, sums[plain:])
    return sums


def _run(
    target: Host,
    kernel: Kernel,
    rows: Sequence[Tensor],
    columns: slice,
    step: int,
    needs: Needs,
    vector: Tensor | None,
    sums: NDArray[np.float64],
) -> None:
    """Run the kernel on rows without gaps, over a multiple of `LANES` columns."""
    threads = min(torch.get_num_threads(), -(-(columns.stop - columns.start) // step))
    floats = -(-needs.scratch_floats // CACHE_LINE_FLOATS) * CACHE_LINE_FLOATS
    work = Work(
        kernel=kernel.address,
        rows=_table(rows, needs.pointers),
        out=0 if vector is None else vector.data_ptr(),
        scratch=_scratch.address(4 * floats * threads),
        sums=sums.ctypes.data,
        given=needs.given,
        columns=columns,
        step=step,
        scratch_bytes=4 * floats,
        sums_bytes=sums.strides[0],
    )
    share_out(target, work, threads)


def _run_on_copies(
    kernel: Kernel,
    rows: Sequence[Tensor],
    columns: slice,
    step: int,
    needs: Needs,
    vector: Tensor | None,
    sums: NDArray[np.float64],
) -> None:
    """Run the kernel on copies of the columns, filled up with zeros."""

    def run(first: int, end: int) -> None:
        copies = [_filled_up(row[first:end]) for row in rows]
        part = None if vector is None else _filled_up(vector[first:end])
        table = np.array(_table(copies, needs.pointers), np.int64)
        given = np.array(needs.given, np.int64)
        kernel(
            table.ctypes.data,
            0,
            len(copies[0]),
            0 if part is None else part.data_ptr(),
            _scratch.address(4 * needs.scratch_floats),
            sums[(first - columns.start) // step].ctypes.data,
            given.ctypes.data,
        )
        if vector is not None and part is not None:
            vector[first:end] = part[: end - first]

    over_spans(run, columns.start, columns.stop, step)


def over_spans_at_once(
    kernel: Kernel, rows: Sequence[Tensor], spans: Sequence[slice], needs: Needs
) -> NDArray[np.float64] | None:
    """Run a kernel over a few short spans of columns, on this thread; return its sums.

    None if a span is no multiple of `LANES`, or rows have gaps.

    Args:
        kernel: A function of `sharing.ARGUMENTS` that writes nothing but sums.
        rows: As of `over_blocks`.
        spans: start and stop given.
        needs: See there.
    """
    if any((span.stop - span.start) % LANES for span in spans) or not _are_plain(rows):
        return None
    table = np.array(_table(rows, needs.pointers), np.int64)
    given = np.array(needs.given, np.int64)
    sums = np.zeros(needs.sums)
    memory = _scratch.address(4 * needs.scratch_floats)
    addresses = table.ctypes.data, sums.ctypes.data, given.ctypes.data
    for span in spans:
        kernel(addresses[0], span.start, span.stop, 0, memory, *addresses[1:])
    return sums


def _are_plain(rows: Sequence[Tensor]) -> bool:
    return all(row.stride(0) == 1 or row.numel() < 2 for row in rows)


def blank_columns(columns: slice) -> int:
    """Return how many columns of zeros fill up the last block."""
    width: int = columns.stop - columns.start
    return -width % LANES


def _span_columns(n: int, width: int) -> int:
    """Return the columns of a span, a multiple of every tile, whatever the number of threads."""
    if width <= SPAN_COLUMNS:
        return SPAN_COLUMNS
    columns = min(SPAN_VALUES // n, -(-width // SPANS))
    return -(-columns // SPAN_MULTIPLE) * SPAN_MULTIPLE


class _Kept(threading.local):
    """Memory that is the thread's own until it asks again.

    It is kept from call to call: touching fresh memory for the first time
    would cost as much as the work in it.
    """

    nbytes = 0
    memory = np.empty(0, np.uint8)
    start = 0

    def address(self, nbytes: int) -> int:
        """Return the address of so many bytes of undefined contents, on a cache line."""
        if nbytes > self.nbytes:
            self.memory = np.empty(nbytes + CACHE_LINE_BYTES, np.uint8)
            self.nbytes = nbytes
            address = self.memory.ctypes.data
            self.start = -(-address // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
        return self.start


_scratch = _Kept()


def _zeros(spans: int, size: int) -> NDArray[np.float64]:
    """Return zeros [spans, size], apart by whole cache lines."""
    lines = -(-8 * size // CACHE_LINE_BYTES)
    return np.zeros((spans, lines * CACHE_LINE_BYTES // 8))[:, :size]


def _filled_up(values: Tensor) -> Tensor:
    """Return a copy that zeros fill up to a multiple of `LANES`."""
    copy = values.new_zeros(-(-len(values) // LANES) * LANES)
    copy[: len(values)] = values
    return copy


def _table(rows: Sequence[Tensor], length: int) -> list[int]:
    addresses = [row.data_ptr() for row in rows]
    return addresses + addresses[:1] * (length - len(addresses))
