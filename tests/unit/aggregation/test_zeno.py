import math

import pytest
import torch

from pliska.aggregation import ParameterError, ZenoPlusPlus, ZenoState

REFERENCE = torch.tensor([3.0, 4.0])


def judged(gradient: list[float], **parameters: float) -> tuple[bool, float, float]:
    rule = ZenoPlusPlus(lr=0.1, **parameters)  # type: ignore[arg-type]
    _, verdict = rule.judge(ZenoState(REFERENCE), torch.tensor(gradient))
    return verdict.is_accepted, verdict.scale, verdict.score


def test_score_is_the_inner_product_at_the_references_length() -> None:
    # g = (0, 10) becomes (0, 5): 0.1 * 20 - rho * 25.
    assert judged([0, 10]) == (True, 0.5, pytest.approx(2.0))
    assert judged([0, 10], rho=0.1) == (False, 0.5, pytest.approx(-0.5))
    assert judged([0, 10], rho=0.1, epsilon=5.0) == (True, 0.5, pytest.approx(-0.5))


def test_a_gradient_that_points_the_other_way_is_refused_however_long() -> None:
    for length in (1e-30, 1.0, 1e30):
        accepted, scale, score = judged([-3 * length, -4 * length])
        assert (accepted, score) == (False, pytest.approx(-2.5))
        assert scale * length == pytest.approx(1.0)


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_nothing_can_be_said_of_zero_and_of_what_is_not_finite(value: float) -> None:
    assert judged([value, value])[0] is False


def test_reference_grows_old_with_each_accepted_gradient() -> None:
    rule, state = ZenoPlusPlus(lr=0.1, age_max=2), ZenoState(REFERENCE)
    state, _ = rule.judge(state, torch.tensor([-1.0, -1.0]))
    assert state.age == 0
    for _ in range(2):
        assert not rule.is_stale(state)
        state, _ = rule.judge(state, torch.tensor([1.0, 1.0]))
    assert rule.is_stale(state)


def test_parameters_are_checked() -> None:
    for parameters in ({"lr": 0}, {"lr": 0.1, "rho": -1}, {"lr": 0.1, "age_max": 0}):
        with pytest.raises(ParameterError):
            ZenoPlusPlus(**parameters)  # type: ignore[arg-type]
