import math
import random

import pytest

from pliska.aggregation import Arrival, BoundError, Kardam, KardamState


def arrival(worker: str, change: float | None, staleness: int = 0) -> Arrival:
    return Arrival(worker, change, 1.0, staleness)


def with_coefficients(**changes: float) -> KardamState:
    return KardamState(changes)


def test_gradient_that_changes_faster_than_most_is_refused() -> None:
    state = with_coefficients(a=1.0, b=1.1, c=1.2)
    following, verdict = Kardam(n=4, f=1).judge(state, arrival("d", 50.0))
    assert not verdict.is_accepted
    assert verdict.reason == "its gradients change too fast: 50, the limit is 1.2"
    assert following.coefficients["d"] == 50.0
    assert Kardam(n=4, f=1).judge(state, arrival("d", 1.15))[1].is_accepted


def test_one_worker_cannot_fill_the_record() -> None:
    rule, state = Kardam(n=4, f=1), with_coefficients(a=1.0, b=1.0, c=1.0, d=1.0)
    state, first = rule.judge(state, arrival("a", 1.0))
    state, second = rule.judge(state, arrival("a", 1.0))
    assert (first.is_accepted, second.is_accepted) == (True, False)
    assert second.reason == "one of the last 2 accepted gradients is its own already"
    state, _ = rule.judge(state, arrival("b", 1.0))
    state, _ = rule.judge(state, arrival("c", 1.0))
    assert rule.judge(state, arrival("a", 1.0))[1].is_accepted


@pytest.mark.parametrize("f", [1, 2, 3])
def test_most_of_any_2f_1_accepted_are_honest(f: int) -> None:
    n, lot = 3 * f + 1, random.Random(f)
    rule, state, accepted = Kardam(n=n, f=f), KardamState(), []
    for _ in range(600):
        # Liars send three times as often, and always within the limit.
        worker = lot.choice([*range(n), *[*range(f)] * 3])
        state, verdict = rule.judge(state, arrival(f"w{worker}", 1.0))
        if verdict.is_accepted:
            accepted.append(worker)
    assert len(accepted) > 50
    for start in range(len(accepted) - 2 * f):
        window = accepted[start : start + 2 * f + 1]
        assert sum(worker >= f for worker in window) >= f + 1


def test_first_gradient_cannot_be_judged() -> None:
    state, verdict = Kardam(n=4, f=1).judge(KardamState(), arrival("a", None))
    assert (state, verdict.is_accepted) == (KardamState(), False)
    _, verdict = Kardam(n=4, f=1).judge(KardamState(), Arrival("a", 1.0, 0.0, 0))
    assert verdict.reason == "nothing to compare it with yet"


def test_gradients_that_are_not_finite_leave_no_trace() -> None:
    for change in (math.nan, math.inf):
        state, verdict = Kardam(n=4, f=1).judge(KardamState(), arrival("a", change))
        assert (state, verdict.is_accepted) == (KardamState(), False)


def test_dampening_falls_with_staleness_alone() -> None:
    rule, state = Kardam(n=4, f=0, alpha=0.5), KardamState()
    found = [rule.judge(state, arrival("a", 1.0, t))[1].dampening for t in (0, 1, 4, 9)]
    assert found == pytest.approx([1, math.exp(-0.5), math.exp(-1), math.exp(-1.5)])


def test_state_is_bounded_and_never_changed() -> None:
    rule, state = Kardam(n=7, f=2), KardamState()
    for i in range(500):
        before = (dict(state.coefficients), state.recent)
        following, _ = rule.judge(state, arrival(f"w{i % 7}", 1.0 + i % 3))
        assert (dict(state.coefficients), state.recent) == before
        state = following
    assert len(state.coefficients) == 7
    assert len(state.recent) <= 4


def test_a_third_may_lie() -> None:
    Kardam(n=4, f=1)
    with pytest.raises(BoundError, match=r"n >= 3f \+ 1"):
        Kardam(n=3, f=1)
