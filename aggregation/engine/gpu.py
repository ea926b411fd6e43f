"""Means, statistics and inner products on a GPU, without waiting for it.

With Triton by kernels of one read each, without it by torch. Results stay on
the device; whoever reads a number waits for it.
"""

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pliska.aggregation.engine import sorted_columns
from pliska.aggregation.engine.networks import Selection

ROWS_MAX = 64
"""More values do not stay in a thread's registers."""

BLOCK_COLUMNS = 128
CHUNK_COLUMNS = 1 << 14
"""Columns summed by one program: float32 products of so many are added in float64."""

PRODUCT_COLUMNS = 64


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Return whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def has_kernels(rows: Sequence[Tensor]) -> bool:
    """Return whether these rows are on a GPU for which there are kernels."""
    return rows[0].device.type == "cuda" and can_compile(rows)


def can_compile(rows: Sequence[Tensor]) -> bool:
    """Return whether there are kernels for these rows, if they are on a GPU."""
    return (
        has_triton()
        and len(rows) <= ROWS_MAX
        and rows[0].dtype in {torch.float32, torch.bfloat16, torch.float16}
        and all(row.stride(0) == 1 for row in rows)
    )


def select_mean(
    rows: Sequence[Tensor], selection: Selection, columns: slice, out: Tensor
) -> Tensor:
    """Write the mean of the selected values of each column to `out`.

    Args:
        rows: n finite tensors [d] on one GPU.
        selection: What is averaged.
        columns: Which; start and stop given.
        out: [d] on the GPU, in the dtype of the arithmetic.

    Returns:
        What `statistics.Sums.stacked` is, on the GPU.
    """
    if columns.start == columns.stop:
        return torch.zeros((4, len(rows)), dtype=torch.float64, device=out.device)
    if not can_compile(rows):
        return sorted_columns.select_mean(rows, selection, columns, out)
    low, high = (rows[0].new_empty(len(out)) for _ in range(2))
    band_mean(rows, selection, columns, out, low, high)
    return statistics(rows, columns, out, low, high)


def band_mean(
    rows: Sequence[Tensor],
    selection: Selection,
    columns: slice,
    out: Tensor,
    low: Tensor,
    high: Tensor,
) -> None:
    """Write the mean of a band of ranks, and the band's ends, in one read of the rows.

    Args:
        rows: n finite tensors [d] for which `can_compile` holds.
        selection: A band.
        columns: Which.
        out: float32 [d]; gets the mean.
        low: [d] in the rows' dtype; gets the smallest value of the band.
        high: [d] in the rows' dtype; gets the largest.
    """
    from pliska.aggregation.engine import triton_kernels

    network = selection.network()
    pairs = tuple(wire for e in network.exchanges for wire in (e.low, e.high))
    width = columns.stop - columns.start
    triton_kernels.select_mean[(-(-width // BLOCK_COLUMNS),)](
        _table(rows),
        out,
        low,
        high,
        columns.start,
        columns.stop,
        KIND=_kind(rows),
        N=len(rows),
        PAIRS=pairs,
        COUNT=len(pairs) // 2,
        KEPT=network.kept,
        KEPT_COUNT=len(network.kept),
        BLOCK=BLOCK_COLUMNS,
    )


def statistics(
    rows: Sequence[Tensor], columns: slice, out: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """Return what `statistics.Sums.stacked` is, on the GPU, by another read."""
    from pliska.aggregation.engine import triton_kernels

    n, chunks = len(rows), -(-(columns.stop - columns.start) // CHUNK_COLUMNS)
    partial = torch.empty((chunks, 3, n), dtype=torch.float64, device=out.device)
    triton_kernels.look_at_rows[(n, chunks)](
        _table(rows),
        out,
        low,
        high,
        partial,
        columns.start,
        columns.stop,
        N=n,
        KIND=_kind(rows),
        CHUNK=CHUNK_COLUMNS,
        BLOCK=1024,
    )
    return torch.nn.functional.pad(partial.sum(dim=0), (0, 0, 0, 1))


def products(rows: Sequence[Tensor], columns: slice, centre: int) -> Tensor:
    """Return the inner products of all rows less row `centre` (-1 for none), and their lengths.

    Args:
        rows: n tensors [d] for which `can_compile` holds.
        columns: Which; not empty.
        centre: A row's position, or -1.

    Returns:
        float64 [n + 1, n] on the GPU, added in float32 within `CHUNK_COLUMNS`:
        the products, and below them the squared length of each row, its centre
        not taken away. One tensor, so that one wait fetches all of it.
    """
    from pliska.aggregation.engine import triton_kernels

    n, chunks = len(rows), -(-(columns.stop - columns.start) // CHUNK_COLUMNS)
    side = max(16, 1 << (n - 1).bit_length())
    partial = torch.empty((chunks, side, side), device=rows[0].device)
    lengths = torch.empty((chunks, side), device=rows[0].device)
    triton_kernels.inner_products[(chunks,)](
        _table(rows),
        max(centre, 0),
        partial,
        lengths,
        columns.start,
        columns.stop,
        IS_CENTRED=centre >= 0,
        N=n,
        SIDE=side,
        KIND=_kind(rows),
        CHUNK=CHUNK_COLUMNS,
        BLOCK=PRODUCT_COLUMNS,
    )
    whole = partial.sum(dim=0, dtype=torch.float64)[:n, :n]
    squares = lengths.sum(dim=0, dtype=torch.float64)[:n]
    return torch.vstack([(whole + whole.T) / 2, squares])


def weighted_sum(rows: Sequence[Tensor], weights: Sequence[float], out: Tensor) -> None:
    """Write the sum of weights[i] * rows[i], added in float64, to `out`.

    Args:
        rows: At least one tensor [d] for which `can_compile` holds.
        weights: One per row.
        out: float32 [d] on the GPU.
    """
    from pliska.aggregation.engine import triton_kernels

    triton_kernels.weighted_sum[(-(-len(out) // 1024),)](
        _table(rows),
        torch.tensor(weights, dtype=torch.float64).to(out.device, non_blocking=True),
        out,
        len(out),
        len(rows),
        KIND=_kind(rows),
        BLOCK=1024,
    )


def _table(rows: Sequence[Tensor]) -> Tensor:
    """Return the rows' addresses on their device; the rows must live until it is idle."""
    addresses = torch.tensor([row.data_ptr() for row in rows], dtype=torch.int64)
    return addresses.to(rows[0].device, non_blocking=True)


def _kind(rows: Sequence[Tensor]) -> Any:
    """Return Triton's name of the rows' dtype."""
    import triton.language as tl

    kinds = {
        torch.float32: tl.float32,
        torch.bfloat16: tl.bfloat16,
        torch.float16: tl.float16,
    }
    return kinds[rows[0].dtype]
