"""Xie, Koyejo, Gupta, "Generalized Byzantine-tolerant SGD", 2018: a test per claim."""

import pytest
import torch

from pliska.aggregation import BoundError, MeaMed, Mean


def test_the_n_f_values_nearest_the_median_are_averaged() -> None:
    # Definition 7. acfa's rule of this name keeps n - 2f.
    rows = torch.tensor([0.0, 1.0, 2.0, 3.0, 100.0])[:, None]
    assert MeaMed(f=1)(rows).vector.item() == 1.5


@pytest.mark.parametrize("f", [0, 1, 3])
def test_less_than_half_may_lie(f: int) -> None:
    MeaMed(f=f).check(2 * f + 1)
    with pytest.raises(BoundError, match=r"n >= 2f \+ 1"):
        MeaMed(f=f).check(2 * f)


def test_lies_differ_from_coordinate_to_coordinate() -> None:
    # Section 3, Figure 1: the generalized model, where each coordinate has other liars,
    # so that no row is honest altogether.
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(9, 300, generator=generator)
    for column in range(300):
        liars = torch.randperm(9, generator=generator)[:2]
        rows[liars, column] = 1e20
    assert float(MeaMed(f=2)(rows).vector.abs().max()) < 3
    assert not float(Mean()(rows).vector.abs().max()) < 1e10
