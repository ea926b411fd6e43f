"""The rows a rule works on: n flat vectors of one length, read in column blocks.

Rules never see a whole matrix: they walk over column blocks that fit the
cache, so the memory a rule needs beside its input is a few blocks and one row.
Nothing here judges a row; `gate` has done that before.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pliska.aggregation.engine import gpu, sums
from pliska.aggregation.engine.compiler import host_for
from pliska.aggregation.engine.fixed_point import snapped_weights
from pliska.aggregation.engine.results import RESULTS
from pliska.aggregation.engine.statistics import squared_lengths

BLOCK_ELEMENTS = 2**19
"""Values in one column block of all rows: 2 MiB of float32, about a core's share of cache."""
DEVICE_BLOCK_ELEMENTS = 2**24
"""The same on a GPU, which has to be asked once a block."""

COMPILED_ELEMENTS_MIN = 2**16
"""Fewer values are added before a kernel is found."""


@dataclass(slots=True)
class Seen:
    """What passes over rows have found out, so that nothing is read twice.

    The gate needs every row's length and the rule something else. A pass for
    the rule made before the gate finds both; if the gate refuses nobody, which
    is the ordinary case, the rows are read once.

    Attributes:
        lengths: Squared length of each row, of the measured columns and of the
            others, float64 [n, 2]; perhaps on a device that is not done yet.
        gram: Inner products less some centre, float64 [n, n] (see `distances`).
        originals: For each row the one that it is a copy of, or itself (see `twins`).
        products: Inner products on a grid, exact, in units of its square.
        means: Coordinate-wise means by what was selected (see `order_statistics`).
    """

    lengths: Tensor | None = None
    gram: Tensor | None = None
    originals: Sequence[int] | None = None
    products: list[list[int]] | None = None
    means: dict[Hashable, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shard:
    """Which columns of longer rows these are, where every process holds some columns.

    Whatever is summed over columns must be summed over all shards, by every
    process and in the same order; then all come to the same decisions.

    Attributes:
        first: Number of the first column here.
        d: Columns of the whole rows.
        total: Returns the sum over all shards of a float64 tensor, the same
            bytes everywhere. Every process must call it.
    """

    first: int
    d: int
    total: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Rows:
    """n vectors of length d in canonical order (by worker, see `faces.canonical`).

    Attributes:
        tensors: n flat tensors [d] of one floating dtype, on one device; only read.
        measured: Leading columns that count for distances and norms. The
            others (float buffers such as running statistics) are aggregated
            along but must not decide who is trusted.
        seen: What is known of them already.
        shard: Which part of the rows this is; None if they are whole.
        grid: Step of the grid that all values lie on (see `fixed_point`); None
            for ordinary numbers.
    """

    tensors: tuple[Tensor, ...]
    measured: int
    seen: Seen = field(default_factory=Seen, compare=False, repr=False)
    shard: Shard | None = None
    grid: float | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.tensors)

    @property
    def d(self) -> int:
        """Length of a row; 0 if there is none."""
        return self.tensors[0].numel() if self.tensors else 0

    @property
    def whole_d(self) -> int:
        """Length of a whole row, of which these columns may be a shard."""
        return self.d if self.shard is None else self.shard.d

    @property
    def whole_measured(self) -> int:
        """Measured columns of a whole row; shards have no others."""
        return self.measured if self.shard is None else self.shard.d

    def total(self, sums: Tensor) -> Tensor:
        """Return what sums over these columns, float64, are over the whole rows."""
        return sums if self.shard is None else self.shard.total(sums.cpu())

    @property
    def dtype(self) -> torch.dtype:
        """Dtype the arithmetic is done in: float64 for float64 rows, else float32."""
        return torch.float64 if self.tensors[0].dtype == torch.float64 else torch.float32

    def select(self, positions: Sequence[int]) -> "Rows":
        """Return the rows at these positions, without copying them; these rows if it is all."""
        if list(positions) == list(range(self.n)):
            return self
        return self.with_tensors(tuple(self.tensors[i] for i in positions))

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> "Rows":
        """Return other rows of the same columns, of which nothing is known yet."""
        return replace(self, tensors=tensors, seen=Seen())

    def columns(self, positions: Tensor) -> Tensor:
        """Return these columns of the whole rows, float64 [n, len(positions)] on the CPU."""
        first = 0 if self.shard is None else self.shard.first
        places = positions - first
        is_here = (places >= 0) & (places < self.d)
        here = places.clamp(0, self.d - 1)
        block = torch.stack([row[here] for row in self.tensors]).to(torch.float64).cpu()
        return self.total(torch.where(is_here, block, 0.0))

    def squared_lengths(self) -> Sequence[tuple[float, float]]:
        """Return each row's squared length, of the measured columns and of the others.

        Float64; not finite if any of the values is not. On a GPU this is the
        one place where the gate waits.
        """
        if self.seen.lengths is None:
            parts = slice(0, self.measured), slice(self.measured, self.d)
            here = [squared_lengths(self.tensors, part) for part in parts]
            self.seen.lengths = self.total(torch.stack(here, dim=1))
        self.seen.lengths = self.seen.lengths.cpu()
        return [(measured, carried) for measured, carried in self.seen.lengths.tolist()]

    def block(self, columns: slice) -> Tensor:
        """Return a fresh [n, width] matrix of these columns, which the caller may overwrite."""
        return torch.stack([row[columns] for row in self.tensors]).to(self.dtype)

    def spans(self, end: int) -> Iterator[slice]:
        """Cut the columns 0..end into the spans of the blocks."""
        is_on_cpu = not self.tensors or self.tensors[0].device.type == "cpu"
        elements = BLOCK_ELEMENTS if is_on_cpu else DEVICE_BLOCK_ELEMENTS
        width = max(1, elements // max(1, self.n))
        for start in range(0, end, width):
            yield slice(start, min(start + width, end))

    def weighted_sum(self, weights: Sequence[float]) -> Tensor:
        """Return the sum over i of weights[i] * row i, in the arithmetic dtype.

        Adds in float64 and in row order, so the bytes do not depend on the
        number of threads; rows without weight are not read, and a single row
        of weight 1 comes back exactly. On a grid weights are rounded to one too.
        """
        if self.grid is not None:
            weights = snapped_weights(weights)
        weighty = [i for i, weight in enumerate(weights) if weight]
        chosen = [self.tensors[i] for i in weighty]
        factors = [weights[i] for i in weighty]
        target = host_for(self.tensors)
        if target is not None and len(chosen) * self.d >= COMPILED_ELEMENTS_MIN:
            total = RESULTS.vector(self.d)
            sums.weighted_sum(target, chosen, factors, total)
            return total
        if chosen and gpu.has_kernels(self.tensors):
            total = self.tensors[0].new_empty(self.d, dtype=torch.float32)
            gpu.weighted_sum(chosen, factors, total)
            return total
        total = self.tensors[0].new_empty(self.d, dtype=self.dtype)
        for columns in self.spans(self.d):
            part = torch.zeros_like(total[columns], dtype=torch.float64)
            for row, factor in zip(chosen, factors, strict=True):
                part.add_(row[columns].to(torch.float64), alpha=factor)
            total[columns] = part
        return total
