import numpy as np
import pytest
import torch

from pliska.aggregation import ARC, BoundError, DnC, ParameterError
from pliska.aggregation.dnc import outlyingness


def test_projections_are_those_on_the_top_singular_vector() -> None:
    sample = torch.randn(7, 30, generator=torch.Generator().manual_seed(1)).double()
    centred = (sample - sample.mean(dim=0)).numpy()
    _, _, vectors = np.linalg.svd(centred)
    assert outlyingness(sample) == pytest.approx((centred @ vectors[0]) ** 2)


def test_rows_that_stand_out_together_are_dropped() -> None:
    rows = torch.randn(12, 500, generator=torch.Generator().manual_seed(2))
    rows[:3] += 3
    report = DnC(f=3, columns=100)(rows, seed=7).report
    assert [entry.weight for entry in report[:3]] == [0, 0, 0]
    assert report[0].reason == "dropped in 1 of 1 samples"


def test_every_round_draws_other_columns() -> None:
    rows = torch.randn(12, 500, generator=torch.Generator().manual_seed(3))
    rule = DnC(f=3, columns=5)
    assert torch.equal(rule(rows, seed=1).vector, rule(rows, seed=1).vector)
    assert len({rule(rows, seed=seed).vector.numpy().tobytes() for seed in range(9)}) > 1


def test_somebody_is_always_left() -> None:
    # FLPoison's intersection may be empty, and its mean NaN.
    with pytest.raises(BoundError, match=r"n >= 5 ceil\(1\.5 f\) \+ 1"):
        DnC(f=2, iterations=5, c=1.5).check(15)
    rows = torch.randn(16, 50, generator=torch.Generator().manual_seed(4))
    for seed in range(20):
        vector = DnC(f=2, iterations=5, c=1.5, columns=3)(rows, seed=seed).vector
        assert torch.isfinite(vector).all(), f"seed={seed}"


def test_a_huge_lie_hides_another_unless_lengths_are_capped() -> None:
    rows = torch.randn(12, 50, generator=torch.Generator().manual_seed(5))
    rows[0] = 1e30
    rows[1] = torch.linspace(-1e4, 1e4, 50)
    assert float(DnC(f=2)(rows).vector.norm()) > 1e2
    assert float((ARC() | DnC(f=2))(rows).vector.norm()) < 10


def test_fewer_than_f_cannot_be_dropped() -> None:
    with pytest.raises(ParameterError, match="c must be at least 1"):
        DnC(f=2, c=0.5)
