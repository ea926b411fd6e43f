"""BASGD: an asynchronous coordinator collects gradients in buffers and aggregates their means.

A pure state machine: `offer` takes a gradient into a buffer; when every buffer
has one, `aggregate` gives the step and `BufferState.empty` the state after it.
"""

from dataclasses import dataclass, replace
from typing import Unpack

import torch
from torch import Tensor

from pliska.aggregation.aggregator import Rule
from pliska.aggregation.errors import ShapeError
from pliska.aggregation.parameters import require_count
from pliska.aggregation.result import Aggregation
from pliska.aggregation.setting import Given


@dataclass(frozen=True, slots=True)
class BufferState:
    """The buffers.

    Attributes:
        means: Mean of the gradients in each buffer, float32 [d]; None while it
            is empty.
        counts: How many gradients each holds.
    """

    means: tuple[Tensor | None, ...]
    counts: tuple[int, ...]

    @classmethod
    def empty(cls, buffers: int) -> "BufferState":
        """Return buffers without gradients."""
        return cls((None,) * buffers, (0,) * buffers)

    @property
    def is_full(self) -> bool:
        """Whether every buffer holds a gradient: time to aggregate."""
        return all(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BASGD:
    """Gradients of worker s are averaged in buffer s mod B; a robust rule combines the B means.

    A liar spoils its own buffer only, however often it sends. Fewer buffers than
    workers wait less for slow ones; the rule must bear f among B.

    Source: Yang, Li, "BASGD: buffered asynchronous SGD for Byzantine learning",
    AAAI 2021, Section 3 (Algorithm 1). Bound: the rule's own, on B. Memory B d,
    cost O(d) an arrival. No deviation; gradients that are not finite are refused.

    Attributes:
        rule: Combines the means; its f counts liars.
        buffers: B.
    """

    rule: Rule
    buffers: int

    def __post_init__(self) -> None:
        require_count("buffers", self.buffers, 1)
        self.rule.check(self.buffers)

    def offer(self, state: BufferState, worker: int, gradient: Tensor) -> BufferState:
        """Return the buffers with this gradient in them; the old state stays as it was.

        Args:
            state: Before.
            worker: Number of the worker, fixed for its life, such as its place
                in the keyring.
            gradient: [d]; not kept.

        Raises:
            ShapeError: It has another length than the others, or is not finite.
        """
        if gradient.ndim != 1 or not gradient.isfinite().all():
            raise ShapeError("a gradient for a buffer must be a finite vector")
        place = worker % self.buffers
        mean, count = state.means[place], state.counts[place]
        if mean is None:
            following = gradient.to(torch.float32, copy=True)
        elif mean.shape != gradient.shape:
            raise ShapeError(f"a gradient of {len(gradient)} values among ones of {len(mean)}")
        else:
            following = mean + (gradient - mean) / (count + 1)
        return replace(
            state,
            means=(*state.means[:place], following, *state.means[place + 1 :]),
            counts=(*state.counts[:place], count + 1, *state.counts[place + 1 :]),
        )

    def aggregate(self, state: BufferState, **given: Unpack[Given]) -> Aggregation[Tensor]:
        """Combine the means of full buffers; the report is on buffers.

        Raises:
            BoundError: Some buffer is empty, so there are too few.
            AggregationError: As the rule's.
        """
        return self.rule([mean for mean in state.means if mean is not None], **given)
