"""Kardam's filter: which gradients an asynchronous coordinator takes, one at a time.

A pure state machine on scalars: `(state, arrival) -> (state, verdict)`. The
caller keeps each worker's last gradient and measures how far it moved; nothing
here holds a vector.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pliska.aggregation.errors import BoundError
from pliska.aggregation.parameters import require_count, require_positive


@dataclass(frozen=True, slots=True)
class Arrival:
    """A gradient, in the numbers that the filter looks at.

    Attributes:
        worker: Whose it is.
        gradient_change: Length of its difference to the worker's gradient that
            was accepted last, or to its first if none was; None if this is
            the first.
        model_change: Length of the difference of the models that the two were
            computed on; ignored in the first.
        staleness: Versions that the model has advanced since, from 0.
    """

    worker: str
    gradient_change: float | None
    model_change: float
    staleness: int


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """What becomes of the gradient.

    Attributes:
        is_accepted: Whether to step along it.
        dampening: Factor on the step, in (0, 1]; by staleness alone.
        reason: The same for people.
    """

    is_accepted: bool
    dampening: float
    reason: str


@dataclass(frozen=True, slots=True)
class KardamState:
    """What the filter remembers: one number per worker, and 2f names.

    Attributes:
        coefficients: Each worker's latest empirical Lipschitz coefficient.
        recent: Workers of the last 2f accepted gradients, oldest first.
    """

    coefficients: Mapping[str, float] = field(default_factory=dict)
    recent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kardam:
    """Lipschitz filter, frequency filter and dampening.

    A gradient of worker p is accepted if both hold. Its empirical Lipschitz
    coefficient |g_p - g_p'| / |x - x'|, with the dash marking p's gradient that
    was accepted last, is at most the (f+1)-th largest of all workers' latest,
    their (n-f)/n quantile. Among the last 2f accepted and this one, the f most
    frequent workers have at most f, so that at least f + 1 of any 2f + 1 in a
    row are honest. Accepted ones are weighted by exp(-alpha sqrt(staleness)).

    Source: Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, "Asynchronous
    Byzantine machine learning (the case of SGD)", ICML 2018, Sections 3 and 4.
    Bound n >= 3f + 1. Cost O(n log n) an arrival. The paper leaves the decreasing
    function of staleness open. Deviations: a worker's first gradient cannot be
    judged and is not taken, so begin with one synchronous round of a robust
    rule; and coefficients are measured against accepted gradients, where the
    paper takes those sent last: a worker whose gradient was refused could
    otherwise only be judged again once the model has moved, which it might
    never do.

    Attributes:
        n: Workers.
        f: Byzantine ones to bear.
        alpha: Strength of the dampening; 0 for none.
    """

    n: int
    f: int
    alpha: float = 0.2

    def __post_init__(self) -> None:
        require_count("n", self.n, 1)
        require_count("f", self.f, 0)
        if self.alpha != 0:
            require_positive("alpha", self.alpha)
        if self.n < 3 * self.f + 1:
            raise BoundError("kardam", self.n, self.f, "n >= 3f + 1", 3 * self.f + 1)

    def judge(self, state: KardamState, arrival: Arrival) -> tuple[KardamState, FilterVerdict]:
        """Decide on one gradient and return the state after it."""
        dampening = math.exp(-self.alpha * math.sqrt(arrival.staleness))
        if arrival.gradient_change is None or not arrival.model_change > 0:
            return state, FilterVerdict(False, dampening, "nothing to compare it with yet")
        coefficient = arrival.gradient_change / arrival.model_change
        if not math.isfinite(coefficient):
            return state, FilterVerdict(False, dampening, "its change is not finite")
        coefficients = {**state.coefficients, arrival.worker: coefficient}
        known = sorted(coefficients.values())
        # The f largest may be lies, also while only some workers are known.
        limit = known[-self.f - 1] if len(known) > self.f else -math.inf
        crowd = Counter((*state.recent, arrival.worker)).most_common(self.f)
        if coefficient > limit:
            reason = f"its gradients change too fast: {coefficient:.4g}, the limit is {limit:.4g}"
        elif sum(count for _, count in crowd) > self.f:
            reason = f"one of the last {2 * self.f} accepted gradients is its own already"
        else:
            recent = (*state.recent, arrival.worker)[-2 * self.f :] if self.f else ()
            reason = f"Lipschitz coefficient {coefficient:.4g}, within the limit of {limit:.4g}"
            return KardamState(coefficients, recent), FilterVerdict(True, dampening, reason)
        return KardamState(coefficients, state.recent), FilterVerdict(False, dampening, reason)
