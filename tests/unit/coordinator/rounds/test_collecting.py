"""When a round opens and closes, event by event. Times are seconds on an invented clock."""

import random
from dataclasses import replace

import pytest
from training.machine import (
    FIRST_LIFE,
    OPTIONS,
    SECOND_LIFE,
    Machine,
    collecting,
    options_of,
    present,
)

from pliska.coordinator.rounds.collecting import next_tick
from pliska.coordinator.rounds.gathering import Gathering
from pliska.coordinator.rounds.round_events import MembersChanged, Opened, Tick
from pliska.coordinator.rounds.round_state import Phase
from pliska.coordinator.training.floor import Floor
from pliska.coordinator.wire import ReplyCode

MANY = options_of(rounds=1000)


def test_round_opens_at_once_when_all_expected_workers_are_here() -> None:
    machine = Machine().feed(present("a", "b", "c"), 1.0)
    assert machine.state.phase is Phase.WAITING
    assert machine.state.reason == "waits for more workers: 3 of 4 are here"
    machine.feed(present("a", "b", "c", "d"), 1.5)
    assert machine.state.phase is Phase.COLLECTING
    assert machine.effects == (Opened(()),)


def test_round_opens_with_the_quorum_after_the_soft_deadline() -> None:
    machine = Machine().feed(present("a", "b"), 5.0).feed(present("a", "b", "c"), 6.0)
    assert next_tick(machine.state, OPTIONS) == 7.0  # since the last time the quorum was short
    assert machine.feed(Tick(), 6.9).state.phase is Phase.WAITING
    assert machine.feed(Tick(), 7.0).state.phase is Phase.COLLECTING


def test_round_does_not_open_below_the_quorum_however_long_it_waits() -> None:
    machine = Machine().feed(present("a", "b"))
    assert next_tick(machine.state, OPTIONS) is None
    machine.feed(Tick(), 1e6)
    assert machine.state.phase is Phase.WAITING
    assert machine.state.reason == "waits for workers: 2 of 3 are here"


def test_round_closes_when_every_member_has_arrived() -> None:
    machine = collecting().fill("abcd", 0.5)
    assert machine.contributors() == ("a", "b", "c", "d")
    assert machine.state.phase is Phase.AGGREGATING


def test_round_closes_with_the_quorum_at_the_soft_deadline_without_any_message() -> None:
    machine = collecting().fill("abc", 0.5)
    assert machine.state.phase is Phase.COLLECTING
    assert next_tick(machine.state, OPTIONS) == 2.0
    machine.feed(Tick(), 2.0)
    assert machine.contributors() == ("a", "b", "c")


def test_round_does_not_wait_for_a_worker_that_died() -> None:
    machine = collecting().fill("abc", 0.5).feed(present("a", "b", "c"), 0.6)
    assert machine.contributors() == ("a", "b", "c")


def test_round_short_of_gradients_reopens_at_the_hard_deadline_and_keeps_what_it_has() -> None:
    machine = collecting().fill("ab")
    assert next_tick(machine.state, OPTIONS) == 10.0
    machine.feed(Tick(), 9.9)
    assert machine.state.attempt == 1
    machine.feed(Tick(), 10.0)
    assert machine.effects == (Opened(("a", "b")),)
    assert machine.state.attempt == 2
    assert "reopens after 10 s: 2 of 3 gradients" in machine.state.reason
    machine.fill("cd", 11.0)
    assert machine.contributors() == ("a", "b", "c", "d")


def test_round_short_of_workers_waits_with_a_reason_and_takes_a_joiner_in_at_once() -> None:
    machine = collecting("a", "b", "c", "d").fill("ab")
    machine.feed(present("a", "b"), 1.0)
    assert machine.state.reason == "waits for workers to join: 2 of 3 gradients"
    machine.feed(present("a", "b", "e"), 3.0)
    assert machine.effects == (Opened(("a", "b")),)
    assert machine.fill("e", 3.0).contributors() == ("a", "b", "e")


def test_round_short_of_workers_takes_one_in_at_once_that_was_restarted() -> None:
    machine = collecting("a", "b", "c").feed(Tick(), 2.0).fill("ab", 2.0)
    assert machine.state.phase is Phase.COLLECTING
    reborn = {"a": FIRST_LIFE, "b": FIRST_LIFE, "c": SECOND_LIFE}
    machine.feed(MembersChanged(reborn), 3.0)
    assert machine.effects == (Opened(("a", "b")),)
    machine.feed(machine.offer("c", life=SECOND_LIFE), 3.0)
    assert machine.answer() is ReplyCode.ACCEPTED


def test_restarted_worker_whose_gradient_is_in_gives_no_reason_to_reopen() -> None:
    machine = collecting("a", "b", "c").feed(Tick(), 2.0).fill("ab", 2.0)
    machine.feed(MembersChanged({"a": FIRST_LIFE, "b": SECOND_LIFE}), 3.0)
    assert machine.effects == ()
    assert machine.state.reason == "waits for workers to join: 2 of 3 gradients"


# --- the soft deadline ----------------------------------------------------------------------


def run_rounds(machine: Machine, count: int, turn_s: float, late: str = "") -> float:
    """Run synchronous rounds in which all but one come after `turn_s`; return the time."""
    now = machine.state.since
    for _ in range(count):
        now += turn_s
        machine.fill([worker for worker in "abcd" if worker != late], now)
        if machine.state.phase is Phase.COLLECTING:
            now = machine.state.since + machine.state.soft_deadline_s
            machine.feed(Tick(), now)
        machine.commit(now)
    return now


def test_soft_deadline_follows_how_long_gradients_take() -> None:
    machine = collecting(options=replace(MANY, soft_deadline_s=0.1))
    assert machine.state.soft_deadline_s == 0.1
    run_rounds(machine, 5, turn_s=3.0)
    assert machine.state.soft_deadline_s == pytest.approx(3.0)


def test_straggler_is_not_waited_for_longer_than_the_others_take() -> None:
    machine = collecting(options=replace(MANY, soft_deadline_s=0.1))
    run_rounds(machine, 5, turn_s=1.0)
    run_rounds(machine, 10, turn_s=1.0, late="d")
    assert machine.state.soft_deadline_s == pytest.approx(1.0, abs=0.2)
    assert machine.state.turns.stragglers("abcd") == frozenset()  # it was given no more time


def test_deadline_grows_again_when_everybody_becomes_slower() -> None:
    machine = collecting(options=replace(MANY, soft_deadline_s=0.1))
    run_rounds(machine, 5, turn_s=1.0)
    for _ in range(120):  # nobody comes in time any more: each is late, and counts so
        run_rounds(machine, 1, turn_s=4.0)
    assert machine.state.soft_deadline_s == pytest.approx(4.0)


def test_deadline_stays_within_the_jobs_bounds() -> None:
    machine = collecting(options=replace(MANY, soft_deadline_s=0.5, deadline_s=2.0))
    run_rounds(machine, 5, turn_s=0.01)
    assert machine.state.soft_deadline_s == 0.5
    run_rounds(machine, 60, turn_s=50.0)
    assert machine.state.soft_deadline_s == 2.0


def test_tick_that_comes_when_it_is_due_is_due_whatever_rounding_does() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        since = rng.uniform(0, 1e6)
        options = replace(MANY, soft_deadline_s=rng.uniform(0.01, 3), deadline_s=rng.uniform(3, 9))
        machine = Machine(options).feed(present(*"abcd"), since).fill("abc", since)
        tick = next_tick(machine.state, options)
        assert tick is not None
        assert machine.feed(Tick(), tick).state.phase is Phase.AGGREGATING


# --- the rule's floor -----------------------------------------------------------------------


def test_number_of_gradients_that_the_rule_cannot_work_with_is_waited_out_with_its_reason() -> None:
    # As with f = 0.2 and Krum: five rows are enough, six are too few.
    floor = Floor({0: "none", 4: "krum with f=1 needs 5, but n=4"})
    options = replace(MANY, gatherings=replace(MANY.gatherings, synchronous=Gathering(3, floor)))
    machine = collecting(options=options).fill("abcd", 1.0)
    assert machine.state.phase is Phase.COLLECTING
    assert machine.state.reason == ("waits for workers to join: krum with f=1 needs 5, but n=4")
    machine.feed(present(*"abcde"), 2.0).fill("e", 2.5)
    assert machine.contributors() == ("a", "b", "c", "d", "e")


def test_round_below_the_floor_reopens_with_the_reason_and_never_closes() -> None:
    floor = Floor({n: f"n={n} is below the bound" for n in range(5)})
    options = replace(MANY, gatherings=replace(MANY.gatherings, synchronous=Gathering(3, floor)))
    machine = collecting(options=options).fill("abcd", 1.0)
    for now in (10.0, 20.0, 30.0):
        machine.feed(Tick(), now)
        assert machine.state.phase is Phase.COLLECTING
        assert "n=4 is below the bound" in machine.state.reason
