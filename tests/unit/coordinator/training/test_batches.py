"""Drawing batches: a pass goes through every example once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.training.batches import batch_indices, batches_in_pass


def test_a_batch_is_the_same_for_whoever_holds_the_lease() -> None:
    first = batch_indices(7, 3, 32, 1000)
    assert first.tolist() == batch_indices(7, 3, 32, 1000).tolist()
    assert len(set(first.tolist())) == 32


def test_batches_differ_between_leases_passes_and_seeds() -> None:
    draws = {
        tuple(batch_indices(seed, lease, 8, 1000).tolist())
        for seed in (1, 2)
        for lease in (0, 1, 125, 126)
    }
    assert len(draws) == 8


@given(
    size=st.integers(1, 40),
    examples=st.integers(1, 200),
    number=st.integers(0, 3),
    seed=st.integers(0, 2**63 - 1),
)
def test_the_batches_of_a_pass_hold_every_example_once(
    size: int, examples: int, number: int, seed: int
) -> None:
    batches = batches_in_pass(size, examples)
    leases = range(number * batches, (number + 1) * batches)
    drawn = [batch_indices(seed, lease, size, examples).tolist() for lease in leases]
    assert Counter(index for batch in drawn for index in batch) == Counter(range(examples))
    assert all(len(batch) == size for batch in drawn[:-1])
    assert 1 <= len(drawn[-1]) <= size


@pytest.mark.parametrize(("size", "batches"), [(1, 10), (3, 4), (5, 2), (9, 2), (10, 1), (11, 1)])
def test_the_last_batch_of_a_pass_is_what_is_left(size: int, batches: int) -> None:
    assert batches_in_pass(size, 10) == batches


def test_a_batch_larger_than_the_training_set_is_the_whole_set() -> None:
    assert sorted(batch_indices(0, 1, 10, 4).tolist()) == [0, 1, 2, 3]


def test_a_lease_far_ahead_has_its_batch_too() -> None:
    assert len(set(batch_indices(0, 2**64 - 1, 3, 10).tolist())) in (1, 3)
