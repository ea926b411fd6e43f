"""Memory for results, used again when nobody holds the last result any more, and for zeros."""

import threading
import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

KEPT_BYTES_MIN = 1 << 22
"""Smaller results come from ordinary memory: touching that for the first time is cheap."""


class ResultMemory:
    """Hands out float32 vectors, and hands memory out again that nobody uses any more.

    The first touch of fresh memory costs nearly as much as a rule itself. So
    one large vector is kept when its last user lets go of it, for the next
    result of that length. May be used from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: NDArray[np.float32] | None = None

    def vector(self, d: int) -> Tensor:
        """Return a float32 vector [d] of undefined contents, nobody else's."""
        if 4 * d < KEPT_BYTES_MIN:
            return torch.empty(d, dtype=torch.float32)
        with self._lock:
            memory, self._kept = self._kept, None
        if memory is None or len(memory) != d:
            memory = torch.empty(d, dtype=torch.float32).numpy()
        lent: NDArray[Any] = memory[:]  # the tensor holds this view: its end is the tensor's end
        weakref.finalize(lent, self._take_back, memory).atexit = False
        return torch.from_numpy(lent)

    def _take_back(self, memory: NDArray[np.float32]) -> None:
        self._kept = memory


RESULTS = ResultMemory()
"""Of this process."""


def blank(like: Tensor) -> Tensor:
    """Return zeros like the vector `like`; on the CPU they take no memory as they are only read."""
    if like.device.type != "cpu":
        return torch.zeros_like(like)
    untouched = np.zeros(like.numel() * like.element_size(), np.uint8)
    return torch.from_numpy(untouched).view(like.dtype)
