"""Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning:
towards optimal statistical rates", ICML 2018: a test per claim.
"""

import statistics

import pytest
import torch
from torch import Tensor

from pliska.aggregation import BoundError, CoordinateMedian, Mean, Rule, TrimmedMean


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def test_median_is_taken_in_each_coordinate() -> None:
    # Definition 1. No row need have this value.
    rows = torch.tensor([[1.0, 9.0], [2.0, 7.0], [30.0, -8.0]])
    assert CoordinateMedian(f=1)(rows).vector.tolist() == [2.0, 7.0]


@pytest.mark.parametrize("values", [(1, 2, 4, 100), (3, 3, 5, 7, 7, 9), (1, 2), (-1, 0, 0, 8)])
def test_median_of_an_even_number_is_the_mean_of_the_middle_two(values: tuple[float, ...]) -> None:
    # Definition 1 uses the usual one-dimensional median; torch.median takes the lower one.
    assert CoordinateMedian(f=0)(column(*values)).vector.item() == statistics.median(values)


def test_median_takes_more_values_than_a_quantile_does() -> None:
    # torch.quantile, which others call, refused more than 2^24 values for years.
    rows = torch.randn(5, 2**24 // 5 + 1, generator=torch.Generator().manual_seed(9))
    found = CoordinateMedian(f=2)(rows).vector
    assert rows.numel() > 2**24
    assert torch.equal(found[-1000:], rows[:, -1000:].sort(dim=0).values[2])


def test_trimmed_mean_drops_f_at_either_end_of_each_coordinate() -> None:
    # Definition 2, with beta n = f, by hand: keep 2, 3, 7 and -1, 0, 1.
    rows = torch.tensor([[9.0, 0.0], [2.0, 1e9], [3.0, -1.0], [-50.0, -3.0], [7.0, 1.0]])
    assert TrimmedMean(f=1)(rows).vector.tolist() == [4.0, 0.0]


def test_trimming_counts_instead_of_rounding_a_fraction_down() -> None:
    # Flower's int(0.2 * 4) = 0 trims nothing here and answers 250.75.
    assert TrimmedMean(f=1)(column(1, 1, 1, 1000)).vector.item() == 1.0


def test_trimming_nothing_is_the_mean() -> None:
    # Definition 2 with beta = 0; an index of [-0:] would keep everything or nothing.
    rows = torch.randn(6, 30, generator=torch.Generator().manual_seed(1))
    assert torch.equal(TrimmedMean(f=0)(rows).vector, Mean()(rows).vector)


def test_extremes_are_left_out_and_never_subtracted() -> None:
    # Sum-minus-extremes loses the 2 to the rounding of 1e20.
    assert TrimmedMean(f=1)(column(1, 2, 3, 1e20)).vector.item() == 2.5
    assert TrimmedMean(f=1)(column(1, 2, 1e20)).vector.item() == 2.0


@pytest.mark.parametrize("rule", [CoordinateMedian, TrimmedMean])
@pytest.mark.parametrize("f", [0, 1, 2, 7])
def test_less_than_half_may_lie(rule: type[Rule], f: int) -> None:
    # Theorems 1 and 4 need alpha < 1/2, and beta in [alpha, 1/2).
    rule(f=f).check(2 * f + 1)
    with pytest.raises(BoundError, match=r"n >= 2f \+ 1"):
        rule(f=f).check(2 * f)


@pytest.mark.parametrize("rule", [CoordinateMedian, TrimmedMean])
def test_aggregate_lies_within_the_honest_range_of_each_coordinate(rule: type[Rule]) -> None:
    # The step of the proofs of Theorems 1 and 4 that bounds what liars can do:
    # with f of 2f + 1 lying, both stay between honest values.
    generator = torch.Generator().manual_seed(2)
    for f in (1, 2, 3, 5):
        honest = torch.randn(f + 1, 200, generator=generator)
        lies = 1e30 * torch.randn(f, 200, generator=generator)
        vector = rule(f=f)(torch.vstack([lies, honest])).vector
        assert (vector >= honest.min(dim=0).values).all()
        assert (vector <= honest.max(dim=0).values).all()


@pytest.mark.parametrize("rule", [CoordinateMedian, TrimmedMean])
def test_error_falls_with_more_data_per_worker_and_grows_with_liars(rule: type[Rule]) -> None:
    # Theorems 1 and 4: error O(alpha / sqrt(n) + 1 / sqrt(n m) [+ 1 / n]). Halving
    # the deviation (four times the data) halves the error; more liars raise it.
    def error(f: int, deviation: float) -> float:
        generator = torch.Generator().manual_seed(3)
        honest = deviation * torch.randn(25 - f, 2000, generator=generator)
        lies = 10 * deviation * torch.ones(f, 2000)
        vector = rule(f=max(f, 1))(torch.vstack([lies, honest])).vector
        return float(vector.square().mean().sqrt())

    assert error(4, 0.5) == pytest.approx(error(4, 1.0) / 2, rel=1e-4)
    assert error(0, 1.0) < error(4, 1.0) < error(10, 1.0) < 2


def test_descent_converges_with_either_rule_and_not_with_the_mean() -> None:
    # Section 4, Algorithm 1 on a quadratic loss; Theorems 1 and 4 against Section 7's
    # observation that the plain mean does not converge.
    def distance_after(rule: Rule) -> float:
        generator = torch.Generator().manual_seed(4)
        optimum, w = torch.ones(20), torch.zeros(20)
        for _ in range(60):
            honest = w - optimum + 0.1 * torch.randn(8, 20, generator=generator)
            lies = -10 * honest[:3]
            w = w - 0.2 * rule(torch.vstack([lies, honest])).vector
        return float((w - optimum).norm())

    assert distance_after(CoordinateMedian(f=3)) < 0.5
    assert distance_after(TrimmedMean(f=3)) < 0.5
    assert distance_after(Mean()) > 1e3
