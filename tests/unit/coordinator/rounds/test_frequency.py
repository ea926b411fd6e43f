"""Who must let others go first."""

import random

import pytest

from pliska.coordinator.rounds.frequency import is_too_frequent


def test_nobody_is_too_frequent_where_nobody_lies() -> None:
    assert not is_too_frequent("a", ["a"] * 10, 0)


@pytest.mark.parametrize("f", [1, 2, 3])
def test_of_any_few_accepted_in_a_row_most_are_not_the_liars(f: int) -> None:
    # f liars send ten times as often as each of the honest.
    rng = random.Random(f)
    liars = [f"liar-{number}" for number in range(f)]
    workers = liars * 10 + [f"honest-{number}" for number in range(2 * f + 1)]
    accepted: list[str] = []
    for _ in range(3000):
        worker = rng.choice(workers)
        if not is_too_frequent(worker, accepted, f):
            accepted.append(worker)
    assert len(accepted) > 300
    for start in range(len(accepted) - 2 * f):
        window = accepted[start : start + 2 * f + 1]
        assert sum(worker.startswith("liar") for worker in window) <= f


def test_only_the_last_few_accepted_matter() -> None:
    assert is_too_frequent("a", ["a", "b"], 1)
    assert not is_too_frequent("a", ["a", "b", "c"], 1)
