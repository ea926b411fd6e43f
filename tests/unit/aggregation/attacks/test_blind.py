import math

import pytest
import torch

from pliska.aggregation import (
    Mean,
    TooManyBadRowsError,
    TrimmedMean,
    attack_named,
)


def honest_rows(h: int = 6, d: int = 300) -> torch.Tensor:
    return 1 + torch.randn(h, d, generator=torch.Generator().manual_seed(1))


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


def test_a_late_gradient_is_the_mean_of_that_round() -> None:
    honest, past = honest_rows(), honest_rows() - 3
    late = attack_named("delayed", past=past)(honest, 2, torch.Generator())
    assert torch.equal(late[1], past.mean(dim=0))
    assert torch.equal(attack_named("delayed")(honest, 1, torch.Generator())[0], honest.mean(dim=0))
