"""How long a round waits for the rest, learnt from the turns of late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.rounds.soft_deadline import SAMPLE_MIN, soft_deadline_s


def test_the_jobs_own_deadline_holds_until_enough_is_known() -> None:
    assert soft_deadline_s([9.0] * (SAMPLE_MIN - 1), 2.0, 10.0, 5.0) == 2.0
    assert soft_deadline_s([9.0] * SAMPLE_MIN, 2.0, 10.0, 5.0) == 9.0


def test_deadline_is_the_median_and_so_many_absolute_deviations() -> None:
    turns = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert soft_deadline_s(turns, 0.1, 100.0, 3.0) == pytest.approx(5.0 + 3.0 * 2.0)


@pytest.mark.parametrize("lie", [0.0, 1e9])
def test_a_minority_that_comes_early_or_late_on_purpose_moves_it_little(lie: float) -> None:
    honest = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98, 1.0, 1.0]
    deadline = soft_deadline_s(honest + [lie] * 4, 0.01, 100.0, 5.0)
    assert 1.0 < deadline < 1.5


@given(
    st.lists(st.floats(0, 1e6), max_size=40),
    st.floats(0.01, 10),
    st.floats(10, 100),
    st.floats(0, 10),
)
def test_it_never_leaves_the_jobs_bounds(
    turns: list[float], least_s: float, most_s: float, spread: float
) -> None:
    assert least_s <= soft_deadline_s(turns, least_s, most_s, spread) <= most_s
