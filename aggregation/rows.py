"""The rows a rule works on: n flat vectors of one length, read in column blocks.

Rules never see a whole matrix: they walk over column blocks that fit the
cache, so the memory a rule needs beside its input is a few blocks and one row.
Nothing here judges a row; `gate` has done that before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pliska.aggregation.engine import sums
from pliska.aggregation.engine.compiler import host_for
from pliska.aggregation.engine.results import RESULTS

BLOCK_ELEMENTS = 2**19
"""Values in one column block of all rows: 2 MiB of float32, about a core's share of cache."""


COMPILED_ELEMENTS_MIN = 2**16
"""Fewer values are added before a kernel is found."""


@dataclass(frozen=True, slots=True)
class Rows:
    """n vectors of length d in canonical order (by worker, see `faces.canonical`).

    Attributes:
        tensors: n flat tensors [d] of one floating dtype, on one device; only read.
        measured: Leading columns that count for distances and norms. The
            others (float buffers such as running statistics) are aggregated
            along but must not decide who is trusted.
    """

    tensors: tuple[Tensor, ...]
    measured: int

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.tensors)

    @property
    def d(self) -> int:
        """Length of a row."""
        return self.tensors[0].numel()

    @property
    def dtype(self) -> torch.dtype:
        """Dtype the arithmetic is done in: float64 for float64 rows, else float32."""
        return torch.float64 if self.tensors[0].dtype == torch.float64 else torch.float32

    def select(self, positions: Sequence[int]) -> "Rows":
        """Return the rows at these positions, without copying them."""
        return Rows(tuple(self.tensors[i] for i in positions), self.measured)

    def block(self, columns: slice) -> Tensor:
        """Return a fresh [n, width] matrix of these columns, which the caller may overwrite."""
        return torch.stack([row[columns] for row in self.tensors]).to(self.dtype)

    def spans(self, end: int) -> Iterator[slice]:
        """Cut the columns 0..end into the spans of the blocks."""
        width = max(1, BLOCK_ELEMENTS // max(1, self.n))
        for start in range(0, end, width):
            yield slice(start, min(start + width, end))

    def weighted_sum(self, weights: Sequence[float]) -> Tensor:
        """Return the sum over i of weights[i] * row i, in the arithmetic dtype.

        Adds in float64 and in row order, so the bytes do not depend on the
        number of threads; rows without weight are not read, and a single row
        of weight 1 comes back exactly.
        """
        weighty = [i for i, weight in enumerate(weights) if weight]
        chosen = [self.tensors[i] for i in weighty]
        factors = [weights[i] for i in weighty]
        target = host_for(self.tensors)
        if target is not None and len(chosen) * self.d >= COMPILED_ELEMENTS_MIN:
            total = RESULTS.vector(self.d)
            sums.weighted_sum(target, chosen, factors, total)
            return total
        total = self.tensors[0].new_empty(self.d, dtype=self.dtype)
        for columns in self.spans(self.d):
            part = torch.zeros_like(total[columns], dtype=torch.float64)
            for row, factor in zip(chosen, factors, strict=True):
                part.add_(row[columns].to(torch.float64), alpha=factor)
            total[columns] = part
        return total
