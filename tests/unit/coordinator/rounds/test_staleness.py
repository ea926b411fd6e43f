"""What age takes off a gradient."""

import pytest

from pliska.coordinator.rounds.staleness import LagSummary, damping


def test_fresh_gradient_counts_in_full_and_older_ones_ever_less() -> None:
    factors = [damping(lag, 0.5) for lag in range(6)]
    assert factors[0] == 1.0
    assert factors == sorted(factors, reverse=True)
    assert factors[3] == pytest.approx(0.5)
    assert [damping(lag, 0.0) for lag in (0, 63)] == [1.0, 1.0]


def test_summary_of_lags() -> None:
    assert LagSummary.of([0, 0, 3, 1]) == LagSummary(count=4, mean=1.0, most=3, late_share=0.5)
    assert LagSummary.of([]) == LagSummary(0, 0.0, 0, 0.0)
