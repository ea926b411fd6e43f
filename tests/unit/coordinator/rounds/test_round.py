"""The round machine, event by event. Times are seconds on an invented clock."""

import random

import pytest
from training.machine import (
    FIRST_LIFE,
    OPTIONS,
    SECOND_LIFE,
    Machine,
    collecting,
    present,
)

from pliska.coordinator.rounds.collecting import next_tick
from pliska.coordinator.rounds.round_events import (
    Aggregated,
    AggregationFailed,
    Broken,
    Commit,
    MembersChanged,
    Opened,
    Publish,
    Received,
    Refused,
    Tick,
)
from pliska.coordinator.rounds.round_state import Phase, SlotState
from pliska.coordinator.wire import ReplyCode


def test_contributors_are_in_canonical_order_whatever_the_order_of_arrival() -> None:
    arrivals = list("abcd")
    random.Random(3).shuffle(arrivals)
    machine = collecting().fill(arrivals)
    assert machine.contributors() == ("a", "b", "c", "d")


def test_bad_content_spends_its_workers_vote_and_counts_toward_the_quorum() -> None:
    machine = collecting().fill("ab")
    for worker in "cd":
        machine.feed(machine.offer(worker)).feed(Refused(machine.offer(worker), "NaN"))
    assert machine.contributors() == ("a", "b")
    assert machine.aggregated().refused == {"c": "NaN", "d": "NaN"}


def test_broken_transfer_frees_the_slot_for_another_try() -> None:
    machine = collecting()
    machine.feed(machine.offer("a")).feed(Broken(machine.offer("a")))
    assert "a" not in machine.state.slots
    assert machine.feed(machine.offer("a")).answer() is ReplyCode.ACCEPTED


def test_repeated_offer_is_a_duplicate_until_the_round_is_committed() -> None:
    machine = collecting()
    machine.feed(machine.offer("a"))
    assert machine.feed(machine.offer("a")).answer() is ReplyCode.BUSY
    machine.feed(Received(machine.offer("a")))
    assert machine.feed(machine.offer("a")).answer() is ReplyCode.DUPLICATE
    machine.fill("bcd")
    assert machine.feed(machine.offer("a")).answer() is ReplyCode.DUPLICATE
    machine.feed(Aggregated())
    assert machine.feed(machine.offer("a")).answer() is ReplyCode.DUPLICATE


def test_offer_after_the_round_closed_is_stale() -> None:
    machine = collecting().fill("abc").feed(Tick(), 2.0)
    assert machine.feed(machine.offer("d")).answer() is ReplyCode.STALE_ROUND


def test_offer_before_the_round_opens_is_asked_to_come_again() -> None:
    machine = Machine().feed(present("a", "b"))
    assert machine.feed(machine.offer("a")).answer() is ReplyCode.BUSY


def test_payload_that_completes_after_the_round_closed_does_not_count() -> None:
    machine = collecting().fill("abc")
    machine.feed(machine.offer("d")).feed(Tick(), 2.0)
    assert machine.contributors() == ("a", "b", "c")
    before = machine.state
    assert machine.feed(Received(machine.offer("d")), 2.1).state == before


@pytest.mark.parametrize("first", [Received, None])
def test_two_different_gradients_for_one_slot_freeze_it_and_neither_counts(
    first: type[Received] | None,
) -> None:
    machine = collecting()
    machine.feed(machine.offer("a", b"one"))
    if first:
        machine.feed(first(machine.offer("a", b"one")))
    machine.feed(machine.offer("a", b"two"))
    assert machine.answer() is ReplyCode.EQUIVOCATION
    assert machine.feed(machine.offer("a", b"one")).answer() is ReplyCode.EQUIVOCATION
    machine.feed(Received(machine.offer("a", b"one"))).fill("bcd")
    assert machine.contributors() == ("b", "c", "d")
    assert "two different gradients" in machine.aggregated().refused["a"]


def test_restarted_worker_is_admitted_at_the_next_opening_not_in_mid_round() -> None:
    machine = collecting()
    reborn = {"a": SECOND_LIFE, "b": FIRST_LIFE, "c": FIRST_LIFE, "d": FIRST_LIFE}
    machine.feed(MembersChanged(reborn))
    machine.feed(machine.offer("a", life=SECOND_LIFE))
    assert machine.answer() is ReplyCode.BUSY
    machine.fill("bcd")
    assert machine.contributors() == ("b", "c", "d")
    machine.commit()
    machine.feed(machine.offer("a", life=SECOND_LIFE))
    assert machine.answer() is ReplyCode.ACCEPTED


def test_restart_is_not_equivocation() -> None:
    machine = collecting("a", "b", "c", "d").fill("a")
    machine.feed(MembersChanged({"a": SECOND_LIFE, "b": FIRST_LIFE, "c": FIRST_LIFE}))
    machine.feed(Tick(), 10.0)  # the hard deadline: the round reopens and keeps a's gradient
    assert machine.effects == (Opened(("a",)),)
    machine.feed(machine.offer("a", b"another", SECOND_LIFE))
    assert machine.answer() is ReplyCode.DUPLICATE
    assert machine.state.slots["a"].state is SlotState.FILLED


def test_rows_that_cannot_be_aggregated_abort_the_round_and_it_is_collected_again() -> None:
    machine = collecting().fill("abcd").feed(AggregationFailed("3 bad rows, f is 1"), 1.0)
    assert machine.state.round == 1
    assert machine.state.slots == {}
    assert machine.state.phase is Phase.COLLECTING
    assert "aborted: 3 bad rows, f is 1" in machine.state.reason


def test_job_halts_with_the_reason_after_too_many_aborts_in_a_row() -> None:
    machine = collecting()
    for _ in range(OPTIONS.aborts_max):
        machine.fill("abcd").feed(AggregationFailed("3 bad rows, f is 1"))
    assert machine.state.phase is Phase.HALTED
    assert machine.state.reason == ("halted after 3 aborts in a row of round 1: 3 bad rows, f is 1")
    assert machine.feed(Tick(), 1e6).effects == ()


def test_commit_publishes_before_the_next_round_opens() -> None:
    machine = collecting().fill("abcd").feed(Aggregated())
    assert machine.effects == (Commit(),)
    machine.feed(machine.committed(), 1.0)
    assert machine.effects == (Publish(), Opened(()))
    assert machine.state.round == 2
    assert machine.state.slots == {}


def test_job_finishes_after_its_last_round() -> None:
    machine = collecting()
    for _ in range(OPTIONS.rounds):
        machine.fill("abcd").commit()
    assert machine.state.phase is Phase.FINISHED
    assert machine.effects == (Publish(),)
    assert next_tick(machine.state, OPTIONS) is None
