import math

import pytest
import torch

from pliska.aggregation import (
    Mean,
    ParameterError,
    TooManyBadRowsError,
    TrimmedMean,
    UnknownNameError,
    attack_named,
    attack_names,
    flipped_labels,
)


def honest_rows(h: int = 6, d: int = 300) -> torch.Tensor:
    return 1 + torch.randn(h, d, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", attack_names())
@pytest.mark.parametrize("h", [1, 6])
def test_attack_forges_rows_like_the_honest_ones_and_changes_none(name: str, h: int) -> None:
    honest = honest_rows(h).reshape(h, 30, 10).double()
    before = honest.clone()
    forged = attack_named(name)(honest, 2, torch.Generator().manual_seed(2))
    assert forged.shape == (2, 30, 10)
    assert forged.dtype == honest.dtype
    assert torch.equal(honest, before)


@pytest.mark.parametrize("name", attack_names())
def test_attack_is_a_function_of_its_arguments_alone(name: str) -> None:
    state = torch.get_rng_state()
    forged = [
        attack_named(name)(honest_rows(), 2, torch.Generator().manual_seed(3)) for _ in range(2)
    ]
    assert torch.equal(*(row.nan_to_num(nan=-1) for row in forged))
    assert torch.equal(torch.get_rng_state(), state)


def test_sign_flip_ruins_the_mean_and_not_the_trimmed_mean() -> None:
    honest = honest_rows()
    forged = attack_named("sign-flip", scale=10.0)(honest, 2, torch.Generator())
    rows = torch.vstack([forged, honest])
    direction = honest.mean(dim=0)
    assert torch.allclose(rows[0], -10 * direction)
    assert float(Mean()(rows).vector @ direction) < 0
    assert float(TrimmedMean(f=2)(rows).vector @ direction) > 0


def test_gaussian_has_the_deviation_asked_for() -> None:
    forged = attack_named("gaussian", deviation=50.0)(
        torch.zeros(1, 20_000), 1, torch.Generator().manual_seed(4)
    )
    assert float(forged.std()) == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize(("name", "value"), [("nan", math.nan), ("inf", math.inf)])
def test_one_value_that_is_not_finite_is_enough_to_be_refused(name: str, value: float) -> None:
    honest = honest_rows()
    rows = torch.vstack([attack_named(name)(honest, 2, torch.Generator()), honest])
    assert int((~rows.isfinite()).sum()) == 2
    with pytest.raises(TooManyBadRowsError):
        Mean()(rows)


def test_huge_coordinate_is_finite() -> None:
    forged = attack_named("huge-coordinate", value=1e38)(honest_rows(), 1, torch.Generator())
    assert float(forged.max()) == pytest.approx(1e38)
    assert int((forged > 1e30).sum()) == 1


def test_label_flip_turns_the_order_of_classes_round() -> None:
    assert flipped_labels(torch.tensor([0, 3, 9]), 10).tolist() == [9, 6, 0]


def test_unknown_attack_and_parameter_suggest_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="'signflip'; did you mean 'sign-flip'"):
        attack_named("signflip")
    with pytest.raises(ParameterError, match="no parameter 'epsilom'; did you mean 'epsilon'"):
        attack_named("ipm", epsilom=1)
    with pytest.raises(ParameterError, match="no parameter 'scale'; it takes none"):
        attack_named("nan", scale=1)
