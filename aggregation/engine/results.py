"""Memory for results, used again when nobody holds the last result any more, and for zeros."""

import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

KEPT_BYTES_MIN = 1 << 18
"""Smaller results come from ordinary memory: touching that for the first time is cheap."""

KEPT_MAX = 2
"""Vectors kept: the result, and what a rule remembers of it."""


class ResultMemory:
    """Hands out float32 vectors, and hands memory out again that nobody uses any more.

    The first touch of fresh memory costs nearly as much as a rule itself. So a
    few large vectors are kept when their last user lets go of them, for the
    next results of that length. May be used from several threads.
    """

    def __init__(self) -> None:
        self._kept: deque[NDArray[np.float32]] = deque(maxlen=KEPT_MAX)

    def vector(self, d: int) -> Tensor:
        """Return a float32 vector [d] of undefined contents, nobody else's."""
        if 4 * d < KEPT_BYTES_MIN:
            return torch.empty(d, dtype=torch.float32)
        memory = self._kept_of(d)
        lent: NDArray[Any] = memory[:]  # the tensor holds this view: its end is the tensor's end
        weakref.finalize(lent, self._kept.append, memory).atexit = False
        return torch.from_numpy(lent)

    def _kept_of(self, d: int) -> NDArray[np.float32]:
        """Return memory of this length, fresh if none is kept; what has another length is let go.

        Without a lock, since memory comes back at any moment, in any thread.
        """
        while self._kept:
            try:
                memory = self._kept.pop()
            except IndexError:
                break  # another thread was faster
            if len(memory) == d:
                return memory
        return torch.empty(d, dtype=torch.float32).numpy()


RESULTS = ResultMemory()
"""Of this process."""


def blank(like: Tensor) -> Tensor:
    """Return zeros like the vector `like`; on the CPU they take no memory as they are only read."""
    if like.device.type != "cpu":
        return torch.zeros_like(like)
    untouched = np.zeros(like.numel() * like.element_size(), np.uint8)
    return torch.from_numpy(untouched).view(like.dtype)
