"""A gradient buffer that multiplies rows while they arrive.

A rule that looks at distances then waits for little more than its weighted sum
after the last gradient is in. The coordinator's intake says how far each row
has come.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pliska.aggregation.buffer import GradientBuffer
from pliska.aggregation.distances import is_exact
from pliska.aggregation.engine.running_gram import RunningGram
from pliska.aggregation.rows import Rows, Seen


class MeasuredBuffer(GradientBuffer):
    """A `GradientBuffer` whose rows are multiplied as their columns come in.

    Call `arrived` as often as convenient while a row is being written, in a
    thread of its own if need be: it works without the interpreter lock. Rows
    for which it was not called to the end are multiplied later, all at once.

    Args:
        n_max: Rows.
        d: Length of a row.
        centre: Float32 [d] that is near the rows, such as the last aggregate;
            None for zero. It changes no result, but distances among rows that
            lie much nearer to each other than to it have to be measured again.

    Raises:
        ParameterError: n_max or d is not positive.
    """

    def __init__(self, n_max: int, d: int, centre: Tensor | None = None) -> None:
        super().__init__(n_max, d)
        self._running = RunningGram([self.row(i) for i in range(n_max)], centre)

    def arrived(self, index: int, columns: int) -> None:
        """Say that the first `columns` values of row `index` are in place and will not change."""
        self._claim_at(index)
        self._running.extend(index, columns)

    def release(self, index: int) -> None:
        """Give a claimed row back; its products are dropped."""
        super().release(index)
        self._running.forget(index)

    def seen(self, workers: Sequence[str]) -> Seen:
        """Return products and lengths of these workers' rows, if all of them are measured."""
        found = self._running.among([self._places[worker] for worker in workers])
        if found is None:
            return Seen()
        gram, lengths = torch.from_numpy(found[0]), torch.from_numpy(found[1])
        rows = Rows(tuple(self.row(self._places[worker]) for worker in workers), self.d)
        if not is_exact(gram, rows):
            return Seen()
        return Seen(torch.stack([lengths, torch.zeros_like(lengths)], dim=1), gram)
