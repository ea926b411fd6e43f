"""Memory as kernels see it: addresses of rows, aligned scratch, results that are used again."""

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CACHE_LINE_BYTES = 64
KEPT_BYTES_MIN = 1 << 22
"""Smaller results come from ordinary memory: touching that for the first time is cheap."""


def are_plain(rows: Sequence[Tensor]) -> bool:
    """Return whether kernels can read these rows [d] where they lie."""
    return all(row.device.type == "cpu" and (row.numel() < 2 or row.stride(0) == 1) for row in rows)


def addresses(rows: Sequence[Tensor], column: int = 0) -> NDArray[np.int64]:
    """Return the address of this column of each row; the rows must be kept alive meanwhile."""
    return np.array(
        [row.data_ptr() + column * row.element_size() for row in rows], dtype=np.int64
    )


def scratch(floats: int) -> tuple[NDArray[np.float32], int]:
    """Return float32 memory and the address in it where a cache line starts."""
    memory = np.empty(floats + CACHE_LINE_BYTES // 4, np.float32)
    return memory, -(-memory.ctypes.data // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


class ResultMemory:
    """Hands out float32 vectors, and hands memory out again that nobody uses any more.

    The first touch of fresh memory costs as much as a rule itself. So one
    large vector is kept when its last user lets go of it, for the next result
    of that length.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: NDArray[np.float32] | None = None

    def vector(self, d: int) -> Tensor:
        """Return a float32 vector [d] of undefined contents."""
        if 4 * d < KEPT_BYTES_MIN:
            return torch.empty(d, dtype=torch.float32)
        with self._lock:
            memory, self._kept = self._kept, None
        if memory is None or len(memory) != d:
            memory = torch.empty(d, dtype=torch.float32).numpy()
        lent: NDArray[Any] = memory[:]  # the tensor holds this view; its end is the tensor's end
        weakref.finalize(lent, self._take_back, memory).atexit = False
        return torch.from_numpy(lent)

    def _take_back(self, memory: NDArray[np.float32]) -> None:
        self._kept = memory


RESULTS = ResultMemory()
"""Of this process."""
