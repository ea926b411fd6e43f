"""Every batch of a pass is counted once, whoever comes, goes and lies."""

from collections import Counter
from random import Random

import pytest

from pliska.coordinator.data_leases import (
    DataCursor,
    DataLeases,
    give_back,
    lease_to,
    settle,
)
from pliska.coordinator.errors import DamagedStateError


def test_leases_begin_at_the_first_batch_and_every_worker_has_its_own() -> None:
    leases = lease_to(DataLeases(), ["c", "a", "b"], turn=0)
    assert leases.held == {"a": 0, "b": 1, "c": 2}


def test_the_answer_does_not_depend_on_the_order_of_the_workers() -> None:
    workers = list("abcdef")
    assert lease_to(DataLeases(), workers, 4) == lease_to(DataLeases(), reversed(workers), 4)


def test_a_worker_keeps_its_lease_when_others_join_in_the_same_round() -> None:
    before = lease_to(DataLeases(), ["a", "b"], turn=3)
    after = lease_to(before, ["a", "b", "c"], turn=3)
    assert after.held == {**before.held, "c": 2}


def test_the_lease_of_a_worker_that_left_goes_to_the_next_one_that_needs_one() -> None:
    before = lease_to(DataLeases(), ["a", "b"], turn=0)
    after = lease_to(before, ["b", "c"], turn=0)
    assert after.held == {"b": before.held["b"], "c": before.held["a"]}


def test_a_lease_that_was_not_counted_is_leased_before_any_new_one() -> None:
    leases = settle(lease_to(DataLeases(), ["a", "b", "c"], turn=0), [0, 2])
    leases = lease_to(give_back(leases), ["a", "b"], turn=2)
    assert leases.held == {"a": 1, "b": 3}


def test_an_aborted_round_gives_all_its_leases_back() -> None:
    leased = lease_to(DataLeases(), ["a", "b"], turn=0)
    assert give_back(leased) == DataLeases()


def test_a_worker_that_never_counts_does_not_keep_the_same_batch() -> None:
    leases = DataLeases()
    held_by_liar = []
    for turn in range(6):
        leases = lease_to(give_back(leases), ["honest", "liar"], turn)
        held_by_liar.append(leases.held["liar"])
        leases = settle(leases, [leases.held["honest"]])
    assert len(set(held_by_liar)) >= 3


def test_a_new_leader_goes_on_from_the_cursor_alone() -> None:
    leases = settle(lease_to(DataLeases(), ["a", "b", "c"], turn=0), [0, 2])
    successor = lease_to(DataLeases(leases.cursor), ["a", "b", "c"], turn=1)
    assert sorted(successor.held.values()) == [1, 3, 4]


@pytest.mark.parametrize("seed", range(20))
def test_among_churn_and_lies_no_batch_is_counted_twice_and_none_is_left_behind(seed: int) -> None:
    lots = Random(seed)
    leases, counted = DataLeases(), Counter[int]()
    for turn in range(300):
        present = [f"w{i}" for i in range(12) if lots.random() < 0.7]
        leases = lease_to(leases, present, turn)
        if lots.random() < 0.1:  # the leader dies: only the commit record stays
            leases = DataLeases(leases.cursor)
            continue
        done = [lease for lease in leases.held.values() if lots.random() < 0.8]
        counted.update(done)
        leases = give_back(settle(leases, done))
    assert counted.most_common(1)[0][1] == 1
    assert all(counted[lease] for lease in range(leases.cursor.before))
    behind = max(counted) - leases.cursor.before
    assert behind < 12 * 10, f"seed {seed}: {behind} batches behind"


@pytest.mark.parametrize(("before", "ahead"), [(3, (3,)), (3, (2,)), (0, (5, 5)), (0, (6, 5))])
def test_a_cursor_that_no_commits_lead_to_is_refused(before: int, ahead: tuple[int, ...]) -> None:
    with pytest.raises(DamagedStateError):
        DataCursor(before, ahead)
