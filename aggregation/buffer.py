"""Where gradients land: one preallocated matrix, one row per worker.

Allocated once and reused round after round, because first-touched memory is
several times slower than warm memory. The coordinator claims a row when a
header is accepted, decodes the payload into it, and marks it filled when the
signature of the whole has been checked; rules read only filled rows.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.errors import BufferFullError, ParameterError, WorkerNameError
from pliska.aggregation.rows import Seen


@dataclass(frozen=True, slots=True)
class FilledRow:
    """A row that is ready for a rule.

    Attributes:
        worker: Whose it is.
        values: View of the row, float32 [d].
    """

    worker: str
    values: Tensor


@dataclass(slots=True)
class _Claim:
    worker: str
    is_filled: bool = field(default=False)


class GradientBuffer:
    """A float32 matrix [n_max, d] whose rows are claimed, filled and released.

    Claim, mark, release and keep from one thread; the memory of a claimed row
    may be written from any thread. The buffer owns the memory: views that
    `row` and `array` hand out stay valid, but their contents belong to whoever
    holds the claim.

    Args:
        n_max: Rows, that is, workers whose gradients may be held at once.
        d: Length of a row.

    Raises:
        ParameterError: n_max or d is not positive.
    """

    def __init__(self, n_max: int, d: int) -> None:
        if n_max < 1 or d < 1:
            raise ParameterError(f"a gradient buffer needs n_max >= 1 and d >= 1, not {n_max}, {d}")
        self._matrix = torch.empty((n_max, d), dtype=torch.float32)
        self._claims: dict[int, _Claim] = {}
        self._places: dict[str, int] = {}
        # The row that was given back last comes first: its memory has been touched.
        self._free = list(range(n_max - 1, -1, -1))

    @property
    def n_max(self) -> int:
        """Number of rows."""
        return self._matrix.shape[0]

    @property
    def d(self) -> int:
        """Length of a row."""
        return self._matrix.shape[1]

    @property
    def workers(self) -> tuple[str, ...]:
        """Workers that hold a claim, in the order of their rows."""
        return tuple(self._claims[i].worker for i in sorted(self._claims))

    def claim(self, worker: str) -> int:
        """Reserve a free row for `worker` and return its index: O(1).

        No more rows are ever touched than were claimed at one time.

        Raises:
            WorkerNameError: This worker holds a row already.
            BufferFullError: Every row is claimed.
        """
        if worker in self._places:
            raise WorkerNameError(f"worker {worker!r} holds a row of this buffer already")
        if not self._free:
            raise BufferFullError(
                f"all {self.n_max} rows are claimed; worker {worker!r} finds none"
            )
        index = self._free.pop()
        self._claims[index] = _Claim(worker)
        self._places[worker] = index
        return index

    def row(self, index: int) -> Tensor:
        """Return row `index` as a torch view, float32 [d]; writing to it writes the buffer."""
        return self._matrix[index]

    def array(self, index: int) -> NDArray[np.float32]:
        """Return row `index` as a NumPy view, float32 [d]; `memoryview` of it takes bytes."""
        view: NDArray[Any] = self._matrix[index].numpy()
        return view

    def mark_filled(self, index: int) -> None:
        """Declare the claimed row complete: from now on rules read it."""
        self._claim_at(index).is_filled = True

    def release(self, index: int) -> None:
        """Give a claimed row back, whatever was decoded into it."""
        del self._places[self._claim_at(index).worker]
        del self._claims[index]
        self._free.append(index)

    def keep(self, workers: Collection[str]) -> None:
        """Give back every row but those of `workers`, complete or not; the memory stays."""
        for index in sorted(self._claims, reverse=True):
            if self._claims[index].worker not in workers:
                self.release(index)

    def filled(self) -> tuple[FilledRow, ...]:
        """Return the complete rows, in the order of their indices."""
        return tuple(
            FilledRow(claim.worker, self.row(index))
            for index, claim in sorted(self._claims.items())
            if claim.is_filled
        )

    def seen(self, workers: Sequence[str]) -> Seen:
        """Return what is known of the rows of these workers before a rule reads them: nothing."""
        del workers
        return Seen()

    def _claim_at(self, index: int) -> _Claim:
        try:
            return self._claims[index]
        except KeyError:
            raise WorkerNameError(f"no worker holds row {index} of this buffer") from None
