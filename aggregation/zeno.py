"""Zeno++: an asynchronous coordinator checks each gradient against one of its own.

A pure state machine: `(state, gradient) -> (state, verdict)`.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pliska.aggregation.gate import squared_norm
from pliska.aggregation.parameters import require_count, require_positive


@dataclass(frozen=True, slots=True)
class ZenoState:
    """The trusted gradient and how old it is.

    Attributes:
        reference: Gradient [d] on the coordinator's own clean batch. Owned by
            the caller; only read.
        age: Gradients accepted since it was computed.
    """

    reference: Tensor
    age: int = 0


@dataclass(frozen=True, slots=True)
class ZenoVerdict:
    """What becomes of the gradient.

    Attributes:
        is_accepted: Whether to step along it.
        scale: What to multiply it with: it gets the reference's length.
        score: Estimated decrease of the loss, less the penalty.
        reason: The same for people.
    """

    is_accepted: bool
    scale: float
    score: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ZenoPlusPlus:
    """Accept g, brought to |v|, if lr <v, g> - rho |g|^2 + lr epsilon >= 0, with v the reference.

    The score is a first-order estimate of how much a step along g lowers the
    loss on clean data. v may be up to `age_max` steps old; `is_stale` says when
    to compute it anew.

    Source: Xie, Koyejo, Gupta, "Zeno++: robust fully asynchronous SGD", ICML
    2020, Section 4 (Algorithm 1, Definition 3). Bears any number of liars as
    long as v is right. Cost O(d) an arrival. No deviation.

    Attributes:
        lr: Learning rate of the step.
        rho: Weight of the penalty on length, 0 or more.
        epsilon: Slack: how far the score may lie below zero, in units of lr.
        age_max: Steps after which the reference is stale, from 1.
    """

    lr: float
    rho: float = 0.0
    epsilon: float = 0.0
    age_max: int = 10

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)
        require_count("age_max", self.age_max, 1)
        for name in ("rho", "epsilon"):
            if getattr(self, name) != 0:
                require_positive(name, getattr(self, name))

    def is_stale(self, state: ZenoState) -> bool:
        """Say whether the reference has to be computed anew before the next gradient."""
        return state.age >= self.age_max

    def judge(self, state: ZenoState, gradient: Tensor) -> tuple[ZenoState, ZenoVerdict]:
        """Decide on one gradient [d] and return the state after it; nothing is changed in place."""
        squared = squared_norm(gradient)
        if not 0 < squared < math.inf:
            return state, ZenoVerdict(False, 0.0, -math.inf, "it is zero or not finite")
        reference = state.reference.to(torch.float64)
        length = float(reference.norm())
        scale = length / math.sqrt(squared)
        inner = scale * float(reference @ gradient.to(torch.float64))
        score = self.lr * inner - self.rho * length**2
        is_accepted = score >= -self.lr * self.epsilon
        reason = f"score {score:.4g}, at least {-self.lr * self.epsilon:.4g} is needed"
        following = replace(state, age=state.age + 1) if is_accepted else state
        return following, ZenoVerdict(is_accepted, scale, score, reason)
