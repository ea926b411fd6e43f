"""The round machine when the job is rolled back: at each point of a round, in each mode."""

import pytest
from training.machine import Machine, collecting, options_of, present

from pliska.coordinator.records.data_leases import DataCursor
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.rounds.round_events import (
    Aggregated,
    AggregationFailed,
    Committed,
    Effect,
    Filtered,
    Opened,
    Publish,
    Restore,
    RollbackReady,
)
from pliska.coordinator.rounds.round_state import Phase
from pliska.coordinator.wire import ReplyCode

ROLLBACK = Rollback(target=1, record_digest=bytes(32), actor="ann", reason="poison")
READY = RollbackReady(ROLLBACK)
OLDER = DataCursor(4)
OPTIONS = options_of(rounds=100)
MODES = list(Mode)


def restores(machine: Machine) -> list[Effect]:
    return [effect for effect in machine.effects if isinstance(effect, Restore)]


def expect_gone_on(machine: Machine, round_number: int) -> None:
    """Let the rollback be committed, and look at the round that follows."""
    assert machine.state.phase is Phase.RESTORING
    assert machine.state.rollback is None
    machine.feed(Committed(OLDER))
    assert machine.effects == (Publish(), Opened(()))
    state = machine.state
    assert (state.phase, state.round, state.slots) == (Phase.COLLECTING, round_number + 1, {})
    assert state.leases.cursor == OLDER
    assert not state.is_primed
    assert all(not OLDER.is_done(each.lease) for each in state.leases.held.values())


@pytest.mark.parametrize("mode", MODES)
def test_an_open_round_gives_way_with_the_gradients_that_it_has(mode: Mode) -> None:
    machine = collecting(mode=mode, options=OPTIONS).fill(["a"])
    machine.feed(READY)
    assert machine.effects == (Restore(ROLLBACK),)
    assert machine.state.round == 1
    expect_gone_on(machine, 1)


def test_a_round_that_waits_for_workers_gives_way() -> None:
    machine = Machine(OPTIONS).feed(present("a", "b")).feed(READY)
    assert machine.effects == (Restore(ROLLBACK),)
    machine.feed(Committed(OLDER))
    assert machine.state.phase is Phase.WAITING
    assert machine.state.round == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_round_that_is_being_committed_is_finished_first(mode: Mode) -> None:
    machine = collecting(mode=mode, options=OPTIONS).fill(["a", "b", "c", "d"])
    machine.feed(READY)
    assert not restores(machine)
    committed = machine.committed()
    machine.feed(Aggregated())
    assert not restores(machine)
    machine.feed(committed)
    assert machine.effects == (Publish(), Restore(ROLLBACK))
    expect_gone_on(machine, 2)


def test_a_round_that_fails_is_not_begun_anew() -> None:
    machine = collecting(options=OPTIONS).fill(["a", "b", "c", "d"]).feed(READY)
    machine.feed(AggregationFailed("too many bad rows"))
    assert machine.effects == (Restore(ROLLBACK),)
    expect_gone_on(machine, 1)


def test_a_round_that_nobody_passed_is_not_gone_on_with() -> None:
    machine = collecting(mode=Mode.ASYNCHRONOUS, options=OPTIONS)
    machine.fill(["a", "b", "c", "d"]).commit()
    machine.fill(["a"]).feed(READY)
    assert not restores(machine)
    machine.feed(Filtered({"a": "too far"}))
    assert machine.effects == (Restore(ROLLBACK),)
    expect_gone_on(machine, 2)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_takes_a_slot_while_the_state_is_restored(mode: Mode) -> None:
    machine = collecting(mode=mode, options=OPTIONS)
    offer = machine.offer("a")
    machine.feed(READY).feed(offer)
    assert machine.answer() is ReplyCode.STALE_ROUND
    assert machine.state.slots == {}


def test_a_gradient_that_is_still_arriving_is_forgotten() -> None:
    machine = collecting(mode=Mode.HYBRID, options=OPTIONS)
    offer = machine.offer("a")
    machine.feed(offer).feed(READY)
    expect_gone_on(machine, 1)


def test_a_job_that_is_over_stays_so() -> None:
    machine = collecting(options=options_of(rounds=1)).fill(["a", "b", "c", "d"]).commit()
    assert machine.state.phase is Phase.FINISHED
    machine.feed(READY)
    assert (machine.state.phase, machine.effects) == (Phase.FINISHED, ())


def test_a_rollback_in_place_of_the_last_round_ends_the_job() -> None:
    machine = collecting(options=options_of(rounds=1)).feed(READY).feed(Committed(OLDER))
    assert (machine.state.phase, machine.effects) == (Phase.FINISHED, (Publish(),))
