"""Asynchronous filters, a test per claim: Kardam (Damaskinos et al., ICML 2018), Zeno++ (Xie,
Koyejo, Gupta, ICML 2020), BASGD (Yang, Li, AAAI 2021), each in a small training run.
"""

import torch
from torch import Tensor

from pliska.aggregation import (
    BASGD,
    Arrival,
    BufferState,
    CoordinateMedian,
    Kardam,
    KardamState,
    ZenoPlusPlus,
    ZenoState,
)

D = 20


def sent(worker: int, liars: int, w: Tensor, generator: torch.Generator) -> Tensor:
    """An honest gradient of |w|^2 / 2 with noise, or its opposite ten times as long."""
    honest = w + 0.1 * torch.randn(D, generator=generator)
    return -10 * honest if worker < liars else honest


def test_without_a_filter_the_model_is_lost() -> None:
    generator, w = torch.Generator().manual_seed(1), torch.ones(D)
    for step in range(300):
        w = w - 0.1 * sent(step % 7, 2, w, generator)
    assert float(w.norm()) > 1e3


def test_kardam_converges_with_fewer_than_a_third_lying() -> None:
    # ICML 2018, Theorem 1. The liars flip signs wildly from one gradient to the next.
    generator, w = torch.Generator().manual_seed(2), torch.ones(D)
    rule, state = Kardam(n=7, f=2), KardamState()
    # The first round is synchronous: nothing can be judged before the model has moved.
    first = [sent(worker, 2, w, generator) for worker in range(7)]
    last = {worker: (gradient, w) for worker, gradient in enumerate(first)}
    w = w - 0.1 * CoordinateMedian(f=2)(first).vector
    taken = [0, 0]
    for step in range(1500):
        worker = int(torch.randint(7, (1,), generator=generator))
        gradient = sent(worker, 0, w, generator) if worker >= 2 else 1e3 * (-1) ** step * w
        change = float((gradient - last[worker][0]).norm())
        moved = float((w - last[worker][1]).norm())
        state, verdict = rule.judge(state, Arrival(f"w{worker}", change, moved, 0))
        taken[worker < 2] += verdict.is_accepted
        if verdict.is_accepted:
            last[worker] = (gradient, w)
            w = w - 0.1 * verdict.dampening * gradient
    assert float(w.norm()) < 0.5
    assert taken[1] <= 0.02 * taken[0]


def test_zeno_plus_plus_bears_any_number_of_liars() -> None:
    # ICML 2020, Section 4: no bound on their number, as long as the validation gradient is right.
    generator, w = torch.Generator().manual_seed(3), torch.ones(D)
    rule = ZenoPlusPlus(lr=0.1, rho=0.001, epsilon=0.0, age_max=5)
    state = ZenoState(w + 0.1 * torch.randn(D, generator=generator))
    for step in range(600):
        if rule.is_stale(state):
            state = ZenoState(w + 0.1 * torch.randn(D, generator=generator))
        gradient = sent(step % 7, 6, w, generator)
        state, verdict = rule.judge(state, gradient)
        if verdict.is_accepted:
            w = w - 0.1 * verdict.scale * gradient
    assert float(w.norm()) < 1


def test_basgd_converges_with_fewer_buffers_than_workers() -> None:
    # AAAI 2021, Section 3: B buffers with a robust rule among them; liars send more often.
    generator, w = torch.Generator().manual_seed(4), torch.ones(D)
    rule = BASGD(rule=CoordinateMedian(f=2), buffers=5)
    state, steps = BufferState.empty(5), 0
    for _ in range(1500):
        worker = int(torch.randint(16, (1,), generator=generator))
        worker = worker if worker < 10 else worker % 2
        state = rule.offer(state, worker, sent(worker, 2, w, generator))
        if state.is_full:
            w = w - 0.1 * rule.aggregate(state).vector
            state, steps = BufferState.empty(5), steps + 1
    assert steps > 50
    assert float(w.norm()) < 0.7
