"""Columns of rows as kernels take them: addresses, in multiples of 16 columns.

Rows that lie apart in memory are read where they are. Rows with gaps between
their values are copied span by span, and the last few columns into a block
that zeros fill up.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine.threads import over_spans

T = TypeVar("T")

LANES = 16
"""Kernels take columns in multiples of this, on every CPU."""

CACHE_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Block:
    """Some columns of all rows, at least as many as `LANES` and a multiple of it.

    Attributes:
        addresses: Where each row's first column lies, int64 [n].
        first: Number of the first column.
        width: Columns, of which those after `used` are zeros.
        used: Columns that there are.
    """

    addresses: NDArray[np.int64]
    first: int
    width: int
    used: int


def over_blocks(rows: Sequence[Tensor], columns: slice, work: Callable[[Block], T]) -> list[T]:
    """Return work(block) of every block of these columns, in column order.

    Args:
        rows: Tensors [d] of one dtype on the CPU.
        columns: start and stop given.
        work: Called from several threads at once; the block's memory lives
            until it returns.
    """
    are_plain = all(row.numel() < 2 or row.stride(0) == 1 for row in rows)
    bases = np.array([row.data_ptr() for row in rows], dtype=np.int64)
    nbytes = rows[0].element_size()

    def span(first: int, end: int) -> T:
        width = end - first
        if are_plain and width % LANES == 0:
            return work(Block(bases + first * nbytes, first, width, width))
        padded = -(-width // LANES) * LANES
        copy = torch.zeros((len(rows), padded), dtype=rows[0].dtype)
        for place, row in zip(copy, rows, strict=True):
            place[:width] = row[first:end]
        starts = copy.data_ptr() + np.arange(len(rows), dtype=np.int64) * padded * nbytes
        return work(Block(starts, first, padded, width))

    whole = columns.start + (columns.stop - columns.start) // LANES * LANES
    parts = over_spans(span, columns.start, whole)
    return parts + over_spans(span, whole, columns.stop)


@contextmanager
def written(out: Tensor, block: Block) -> Iterator[int]:
    """Give the address where a float32 result of `block.width` columns may be written.

    What is written comes to stand in `out` [d].
    """
    if block.used == block.width:
        yield out.data_ptr() + 4 * block.first
        return
    spare = torch.empty(block.width, dtype=torch.float32)
    yield spare.data_ptr()
    out[block.first : block.first + block.used] = spare[: block.used]


@contextmanager
def scratch(floats: int) -> Iterator[int]:
    """Give the address of zeroed float32 memory that starts on a cache line."""
    memory = np.zeros(floats + CACHE_LINE_BYTES // 4, np.float32)
    yield -(-memory.ctypes.data // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
    del memory
