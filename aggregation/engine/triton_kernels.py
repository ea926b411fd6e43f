# Triton's constants are written in capitals, and its tuples know no unpacking.
# ruff: noqa: N803, RUF005
"""Kernels for GPUs, written in Triton: an optional dependency, imported only when asked for.

One read of the rows and one write of the result for coordinate-wise means;
one read for inner products, never in TF32, whose ten bits would drown close
rows. Nothing here waits for the GPU. `gpu` calls this.

Rows are handed over as a table of addresses, since they need not be contiguous
with one another.
"""

import triton
import triton.language as tl


@triton.jit
def _value(table, i, columns, inside, KIND: tl.constexpr):
    """Load columns of row i and widen them to float32."""
    row = tl.load(table + i).to(tl.pointer_type(KIND))
    return tl.load(row + columns, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def select_mean(
    table,
    out,
    low,
    high,
    start,
    stop,
    KIND: tl.constexpr,
    N: tl.constexpr,
    PAIRS: tl.constexpr,
    COUNT: tl.constexpr,
    KEPT: tl.constexpr,
    KEPT_COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sort by a network, average the kept wires in float64, store mean, minimum and maximum.

    The last two are values of rows, so that the rows' dtype holds them.
    PAIRS holds COUNT exchanges (wire of the minimum, wire of the maximum) one
    after the other. Every value stays in a register.
    """
    columns = start + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < stop
    wires = ()
    for i in tl.static_range(N):
        wires = wires + (_value(table, i, columns, inside, KIND),)
    for e in tl.static_range(COUNT):
        smaller = tl.minimum(wires[PAIRS[2 * e]], wires[PAIRS[2 * e + 1]])
        larger = tl.maximum(wires[PAIRS[2 * e]], wires[PAIRS[2 * e + 1]])
        wires = wires[: PAIRS[2 * e]] + (smaller,) + wires[PAIRS[2 * e] + 1 :]
        wires = wires[: PAIRS[2 * e + 1]] + (larger,) + wires[PAIRS[2 * e + 1] + 1 :]
    total = wires[KEPT[0]].to(tl.float64)
    least = wires[KEPT[0]]
    largest = wires[KEPT[0]]
    for k in tl.static_range(1, KEPT_COUNT):
        total += wires[KEPT[k]].to(tl.float64)
        least = tl.minimum(least, wires[KEPT[k]])
        largest = tl.maximum(largest, wires[KEPT[k]])
    tl.store(out + columns, (total / KEPT_COUNT).to(tl.float32), mask=inside)
    tl.store(low + columns, least.to(KIND), mask=inside)
    tl.store(high + columns, largest.to(KIND), mask=inside)


@triton.jit
def look_at_rows(
    table,
    out,
    low,
    high,
    partial,
    start,
    stop,
    N: tl.constexpr,
    KIND: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum, over one chunk of one row: squared distance, square, columns in the kept range.

    Programs of one chunk are neighbours, so that result and range come from
    the cache. partial is float64 [chunks, 3, N].
    """
    i = tl.program_id(0)
    chunk = tl.program_id(1)
    first = start + chunk.to(tl.int64) * CHUNK
    distance = tl.zeros((BLOCK,), dtype=tl.float64)
    square = tl.zeros((BLOCK,), dtype=tl.float64)
    kept = tl.zeros((BLOCK,), dtype=tl.int32)
    for offset in range(0, CHUNK, BLOCK):
        columns = first + offset + tl.arange(0, BLOCK)
        inside = columns < stop
        value = _value(table, i, columns, inside, KIND)
        gap = (value - tl.load(out + columns, mask=inside, other=0.0)).to(tl.float64)
        wide = value.to(tl.float64)
        distance += gap * gap
        square += wide * wide
        above = value >= tl.load(low + columns, mask=inside, other=1.0).to(tl.float32)
        below = value <= tl.load(high + columns, mask=inside, other=-1.0).to(tl.float32)
        kept += (above & below & inside).to(tl.int32)
    place = partial + chunk * 3 * N + i
    tl.store(place, tl.sum(distance, axis=0))
    tl.store(place + N, tl.sum(square, axis=0))
    tl.store(place + 2 * N, tl.sum(kept, axis=0).to(tl.float64))


@triton.jit
def weighted_sum(table, weights, out, stop, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Add weights[i] (float64) times row i, for i < count, in float64 and in row order."""
    columns = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < stop
    total = tl.zeros((BLOCK,), dtype=tl.float64)
    for i in range(count):
        value = _value(table, i, columns, inside, KIND).to(tl.float64)
        total += value * tl.load(weights + i)
    tl.store(out + columns, total.to(tl.float32), mask=inside)


@triton.jit
def inner_products(
    table,
    centre,
    partial,
    lengths,
    start,
    stop,
    IS_CENTRED: tl.constexpr,
    N: tl.constexpr,
    SIDE: tl.constexpr,
    KIND: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply one chunk of columns of all rows, less row `centre` if IS_CENTRED.

    partial is float32 [chunks, SIDE, SIDE], of which N x N are used; lengths is
    float32 [chunks, SIDE] and gets the squares of the rows as they are. Products
    are of three TF32 parts each, which is float32's precision.
    """
    chunk = tl.program_id(0)
    first = start + chunk.to(tl.int64) * CHUNK
    rows = tl.arange(0, SIDE)
    starts = tl.load(table + tl.minimum(rows, N - 1)).to(tl.pointer_type(KIND))
    middle = tl.load(table + centre).to(tl.pointer_type(KIND))
    total = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    squares = tl.zeros((SIDE, BLOCK), dtype=tl.float32)
    for offset in range(0, CHUNK, BLOCK):
        columns = first + offset + tl.arange(0, BLOCK)
        inside = columns < stop
        wanted = inside[None, :] & (rows < N)[:, None]
        block = tl.load(starts[:, None] + columns[None, :], mask=wanted, other=0.0)
        moved = block.to(tl.float32)
        squares += moved * moved
        if IS_CENTRED:
            less = tl.load(middle + columns, mask=inside, other=0.0).to(tl.float32)
            moved = tl.where(wanted, moved - less[None, :], 0.0)
        total = tl.dot(moved, tl.trans(moved), total, input_precision="tf32x3")
    place = partial + chunk.to(tl.int64) * SIDE * SIDE
    tl.store(place + rows[:, None] * SIDE + rows[None, :], total)
    tl.store(lengths + chunk * SIDE + rows, tl.sum(squares, axis=1))
