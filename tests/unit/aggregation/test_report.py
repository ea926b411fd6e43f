import pytest

from pliska.aggregation import SCORE_MAX, Verdict
from pliska.aggregation.report import bounded, refusal, suspicion


def test_score_is_relative_to_the_median_distance() -> None:
    assert suspicion([1.0, 2.0, 4.0, 8.0, 200.0], 0.0) == [0.25, 0.5, 1.0, 2.0, 50.0]


def test_disagreement_below_the_resolution_is_none() -> None:
    assert suspicion([0.0, 1e-20, 3e-20], 1e-12) == pytest.approx([0.0, 1e-8, 3e-8])


def test_score_is_finite_whatever_a_row_says() -> None:
    assert suspicion([0.0, 0.0, 0.0, 1e300], 0.0) == [0.0, 0.0, 0.0, SCORE_MAX]
    assert suspicion([1.0, 1.0, 1e300], 0.0)[2] == SCORE_MAX


def test_margin_is_bounded_on_both_sides() -> None:
    assert [bounded(x) for x in (-1e300, -2.0, 0.5, 1e300)] == [-SCORE_MAX, -2.0, 0.5, SCORE_MAX]


def test_refused_row_has_no_weight_and_the_highest_score() -> None:
    entry = refusal("w1", "too late")
    assert (entry.weight, entry.score, entry.verdict) == (0.0, SCORE_MAX, Verdict.REFUSED)
    assert (entry.worker, entry.reason) == ("w1", "too late")
