"""Every batch of a pass is counted once, whoever comes, goes and lies."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.records.data_leases import (
    LEFT_MAX,
    DataCursor,
    DataLeases,
    Held,
    hand_in,
    keep,
    lease_to,
    settle,
)
from pliska.coordinator.wire.errors import MalformedError


def held(leases: DataLeases) -> dict[str, int]:
    return {worker: each.lease for worker, each in leases.held.items()}


def counting(leases: DataLeases, *counted: int) -> DataLeases:
    return settle(leases, leases.cursor.settle(counted))


# --- the cursor -----------------------------------------------------------------------------


def test_the_cursor_names_what_is_done_by_its_end_and_what_is_left() -> None:
    cursor = DataCursor().settle([0, 2, 5])
    assert cursor == DataCursor(6, (1, 3, 4))
    assert [lease for lease in range(8) if cursor.is_done(lease)] == [0, 2, 5]
    assert cursor.settle([1, 3, 4]) == DataCursor(6)
    assert cursor.settle([]) == cursor


@pytest.mark.parametrize(
    ("end", "left"),
    [(3, (3,)), (3, (2,)), (0, (0,)), (9, (5, 5)), (9, (6, 5)), (1, (0,))],
)
def test_a_cursor_that_no_commits_lead_to_is_refused(end: int, left: tuple[int, ...]) -> None:
    with pytest.raises(MalformedError):
        DataCursor(end, left)


def test_as_many_leases_may_be_left_as_fit_and_no_more() -> None:
    most = DataCursor(LEFT_MAX + 1, tuple(range(LEFT_MAX)))
    assert DataCursor().settle([LEFT_MAX]) == most
    with pytest.raises(MalformedError):
        DataCursor(LEFT_MAX + 2, tuple(range(LEFT_MAX + 1)))
    with pytest.raises(MalformedError):
        DataCursor().settle([LEFT_MAX + 1])


def test_a_lease_far_beyond_is_refused_before_anything_is_counted_up() -> None:
    with pytest.raises(MalformedError, match="too far ahead"):
        DataCursor().settle([2**64 - 1])


# --- who gets which -------------------------------------------------------------------------


def test_leases_begin_at_the_first_batch_and_every_worker_has_its_own() -> None:
    assert held(lease_to(DataLeases(), ["c", "a", "b"], 3)) == {"a": 0, "b": 1, "c": 2}


def test_the_answer_does_not_depend_on_the_order_of_the_workers() -> None:
    workers = list("abcdef")
    assert lease_to(DataLeases(), workers, 4) == lease_to(DataLeases(), reversed(workers), 4)


def test_a_worker_keeps_its_lease_when_others_join_in_the_same_round() -> None:
    before = lease_to(DataLeases(), ["a", "b"], 3)
    after = lease_to(before, ["a", "b", "c"], 3)
    assert held(after) == {**held(before), "c": 2}


def test_the_lease_of_a_worker_that_left_goes_to_the_next_one_that_needs_one() -> None:
    before = lease_to(DataLeases(), ["a", "b"], 2)
    after = lease_to(keep(before, ["b", "c"], 2), ["b", "c"], 2)
    assert held(after) == {"b": held(before)["b"], "c": held(before)["a"]}


def test_a_lease_that_was_not_counted_is_leased_before_any_new_one() -> None:
    leases = counting(lease_to(DataLeases(), ["a", "b", "c"], 3), 0, 2)
    assert held(lease_to(DataLeases(leases.cursor), ["a", "b"], 4)) == {"a": 1, "b": 3}


def test_a_worker_that_never_counts_does_not_keep_the_same_batch() -> None:
    cursor, held_by_liar = DataCursor(), []
    for round_number in range(1, 7):
        now = held(lease_to(DataLeases(cursor), ["honest", "liar"], round_number))
        held_by_liar.append(now["liar"])
        cursor = cursor.settle([now["honest"]])
    assert len(set(held_by_liar)) >= 3


def test_what_is_under_way_is_not_leased_again_while_it_is() -> None:
    leases = hand_in(lease_to(DataLeases(), ["a"], 1), 0)
    assert held(lease_to(leases, ["a"], 1, under_way={0})) == {"a": 1}
    assert held(lease_to(leases, ["a"], 1)) == {"a": 0}  # it came to nothing


def test_a_lease_that_nobody_asked_for_again_is_taken_back_after_its_rounds() -> None:
    leases = lease_to(DataLeases(), ["a", "b"], 2)
    assert held(keep(leases, ["a", "b"], 2)) == {"a": 0, "b": 1}
    renewed = lease_to(leases, ["b"], 3)
    assert renewed.held["b"] == Held(1, since=3)
    assert held(keep(renewed, ["a", "b"], 3)) == {"b": 1}


def test_what_a_commit_counted_is_held_by_nobody() -> None:
    leases = lease_to(DataLeases(), ["a", "b", "c"], 3)
    assert held(counting(leases, 0, 2)) == {"b": 1}


def test_a_new_leader_goes_on_from_the_cursor_alone() -> None:
    leases = counting(lease_to(DataLeases(), ["a", "b", "c"], 3), 0, 2)
    successor = lease_to(DataLeases(leases.cursor), ["a", "b", "c"], 3)
    assert sorted(held(successor).values()) == [1, 3, 4]


WORKERS = [f"w{number}" for number in range(6)]
rounds = st.lists(
    st.fixed_dictionaries(
        {
            "present": st.sets(st.sampled_from(WORKERS)),
            "lost": st.sets(st.sampled_from(WORKERS)),
            "dies": st.booleans(),
        }
    ),
    max_size=40,
)


@given(rounds)
def test_in_any_rounds_with_losses_every_lease_is_counted_exactly_once(
    history: list[dict[str, set[str]]],
) -> None:
    """Synchronous rounds: workers come and go, gradients are lost, leaders die before they commit.

    After it, rounds without losses count what is left; then each lease was counted once.
    """
    cursor, counted = DataCursor(), Counter[int]()
    calm = [{"present": set(WORKERS), "lost": set(), "dies": False}]
    for number, each in enumerate([*history, *calm], 1):
        leases = held(lease_to(DataLeases(cursor), each["present"], number))
        done = [lease for worker, lease in leases.items() if worker not in each["lost"]]
        if not each["dies"]:
            cursor = cursor.settle(done)
            counted.update(done)
        assert len(cursor.left) < len(WORKERS)
    assert counted == Counter(range(cursor.end))
