"""The round machine in its three modes, and between them.

Scenarios first, then histories at random, of workers that behave as workers do
and of messages that come at any time.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from training.machine import Machine, collecting, options_of, present

from pliska.coordinator.records.mode import Mode
from pliska.coordinator.rounds.collecting import next_tick
from pliska.coordinator.rounds.gathering import Gathering
from pliska.coordinator.rounds.round_events import (
    Aggregate,
    Aggregated,
    AggregationFailed,
    Answer,
    Asked,
    Broken,
    Committed,
    Event,
    Filtered,
    MembersChanged,
    ModeRequested,
    Publish,
    Recall,
    Received,
    Refused,
    Tick,
)
from pliska.coordinator.rounds.round_state import Offered, Phase, RoundOptions, Sealed, SlotState
from pliska.coordinator.training.floor import Floor
from pliska.coordinator.wire import ReplyCode

MANY = options_of(rounds=1000)
BUFFERED = options_of(rounds=1000, buffers=3)
HYBRID, ASYNC, SYNC = Mode.HYBRID, Mode.ASYNCHRONOUS, Mode.SYNCHRONOUS


def hybrid() -> Machine:
    return collecting(mode=HYBRID, options=MANY)


def primed() -> Machine:
    """An asynchronous job after the round that primed its filter, with no gradient in."""
    machine = collecting(mode=ASYNC, options=MANY).fill("abc").commit()
    assert machine.state.is_primed
    return machine


# --- hybrid ---------------------------------------------------------------------------------


def test_hybrid_round_closes_with_its_buffer_and_waits_for_nobody() -> None:
    machine = hybrid().fill("abc", 0.5)
    assert machine.contributors() == ("a", "b", "c")


def test_late_gradient_counts_in_the_next_round_with_its_lag() -> None:
    machine = hybrid().fill("abc", 0.5)
    # The round is being aggregated; d has computed on the same version as the others.
    machine.fill("d", 0.6, made_for=1)
    assert machine.effects == ()
    machine.commit(0.7).fill("ab", 1.0)
    sealed = machine.aggregated()
    assert sealed.contributors == ("a", "b", "d")
    assert [sealed.lag(worker) for worker in sealed.contributors] == [0, 0, 1]


def test_gradient_that_arrives_across_two_rounds_counts_where_it_is_whole() -> None:
    machine = hybrid()
    slow = machine.offer("d")
    machine.feed(slow, 0.1).fill("abc", 0.5).commit(0.6)
    assert machine.state.slots["d"].state is SlotState.RECEIVING
    machine.fill("ab", 1.0).feed(Received(slow), 1.1)
    assert machine.contributors() == ("a", "b", "d")
    assert machine.aggregated().lag("d") == 1


def test_gradient_that_takes_too_long_to_arrive_is_too_old_when_it_is_whole() -> None:
    machine = hybrid()
    slow = machine.offer("d")
    machine.feed(slow, 0.1)
    for now in (1.0, 2.0, 3.0):
        machine.fill("abc", now).commit(now)
    machine.feed(Received(slow), 3.5)
    assert "d" not in machine.state.slots
    assert machine.state.round == 4


def test_worker_has_one_gradient_in_a_buffer_and_the_next_one_waits() -> None:
    machine = hybrid().fill("abc", 0.5).fill("d", 0.6, made_for=1).commit(0.7)
    machine.feed(machine.offer("d", b"newer"), 0.8)
    assert machine.answer() is ReplyCode.BUSY
    machine.feed(machine.offer("d", b"older", made_for=1), 0.8)
    assert machine.answer() is ReplyCode.EQUIVOCATION


def test_repetition_of_a_late_gradient_is_a_duplicate_wherever_it_stands() -> None:
    machine = hybrid().fill("abc", 0.5)
    again = machine.offer("a", made_for=1)
    assert machine.feed(again, 0.6).answer() is ReplyCode.DUPLICATE  # it is being aggregated
    machine.fill("d", 0.6, made_for=1)
    assert machine.feed(machine.offer("d", made_for=1), 0.6).answer() is ReplyCode.DUPLICATE
    machine.feed(Aggregated(), 0.7)
    assert machine.feed(again, 0.8).answer() is ReplyCode.DUPLICATE


def test_second_gradient_for_a_slot_that_is_being_aggregated_changes_nothing() -> None:
    machine = hybrid().fill("abc", 0.5)
    before = machine.state
    machine.feed(machine.offer("a", b"another", made_for=1), 0.6)
    assert machine.answer() is ReplyCode.EQUIVOCATION
    assert machine.state == before


def test_older_gradient_than_the_one_that_is_in_is_stale() -> None:
    machine = hybrid().fill("abc", 0.5).commit(0.6).fill("a", 0.7)
    machine.feed(machine.offer("a", b"older", made_for=1), 0.8)
    assert machine.answer() is ReplyCode.STALE_ROUND


def test_larger_buffer_is_closed_with_the_quorum_at_the_soft_deadline() -> None:
    large = Gathering(3, Floor({}), rows_full=4, lag_max=2, damping=0.5)
    machine = collecting(mode=HYBRID, options=options_of(rounds=9, hybrid=large)).fill("abc", 0.5)
    assert machine.state.phase is Phase.COLLECTING
    assert next_tick(machine.state, machine.options) == 2.0
    assert machine.feed(Tick(), 2.0).contributors() == ("a", "b", "c")


def test_aborted_round_keeps_what_came_for_the_next_and_calls_the_others_back() -> None:
    machine = hybrid().fill("abc", 0.5).fill("d", 0.6, made_for=1)
    machine.feed(AggregationFailed("3 bad rows"), 0.7)
    assert set(machine.state.slots) == {"d"}
    assert any(isinstance(effect, Recall) for effect in machine.effects)
    assert "aborted: 3 bad rows" in machine.state.reason


# --- asynchronous: buffers ------------------------------------------------------------------


def test_round_closes_when_every_buffer_has_a_gradient() -> None:
    machine = collecting(mode=ASYNC, options=BUFFERED)  # a and d share a buffer
    machine.fill("ad", 0.5).fill("b", 0.6)
    assert machine.state.phase is Phase.COLLECTING
    assert machine.fill("c", 0.7).contributors() == ("a", "b", "c", "d")
    assert machine.aggregated().places == {"a": 0, "b": 1, "c": 2, "d": 0}


def test_bad_gradient_alone_in_its_buffer_is_the_buffers_row() -> None:
    machine = collecting(mode=ASYNC, options=BUFFERED).fill("ab", 0.5)
    machine.feed(machine.offer("c"), 0.6).feed(Refused(machine.offer("c"), "NaN"), 0.6)
    assert machine.aggregated().refused == {"c": "NaN"}


# --- asynchronous: single gradients ---------------------------------------------------------


def test_first_asynchronous_round_is_closed_by_the_rule_over_a_quorum() -> None:
    machine = collecting(mode=ASYNC, options=MANY).fill("a", 0.1).fill("b", 0.2)
    assert machine.state.phase is Phase.COLLECTING
    sealed = machine.fill("c", 0.3).aggregated()
    assert sealed.contributors == ("a", "b", "c")
    assert not sealed.is_filtered


def test_then_each_gradient_makes_a_version() -> None:
    machine = primed()
    for number, worker in enumerate("abdc"):
        sealed = machine.fill(worker, 1.0 + number).aggregated()
        assert sealed.contributors == (worker,)
        assert sealed.is_filtered
        machine.commit(1.0 + number)
    assert machine.state.round == 6


def test_gradients_that_came_while_one_was_committed_are_judged_together() -> None:
    machine = primed().fill("a", 1.0).fill("bd", 1.1, made_for=2)
    machine.commit(1.2)
    assert machine.contributors() == ("b", "d")
    assert machine.state.phase is Phase.AGGREGATING


def test_gradient_that_does_not_pass_the_filter_is_spent_and_the_round_goes_on() -> None:
    machine = primed().fill("a", 1.0).feed(Filtered({"a": "changes too fast"}), 1.1)
    assert machine.state.phase is Phase.COLLECTING
    assert machine.state.slots["a"].state is SlotState.OUTVOTED
    assert machine.feed(machine.offer("a"), 1.2).answer() is ReplyCode.DUPLICATE
    sealed = machine.fill("b", 1.3).aggregated()
    assert sealed.contributors == ("b",)
    assert sealed.outvoted == {"a": "changes too fast"}
    assert sealed.refused == {}


def test_round_in_which_nobody_passes_is_given_to_the_rule_at_once() -> None:
    machine = primed()
    for worker in "abc":
        machine.fill(worker, 1.0).feed(Filtered({worker: "too fast"}), 1.0)
    assert machine.state.is_primed
    machine.fill("d", 1.1).feed(Filtered({"d": "too fast"}), 1.1)
    assert not machine.state.is_primed
    assert machine.state.slots == {}
    assert any(isinstance(effect, Recall) for effect in machine.effects)
    assert "the rule decides this round" in machine.state.reason
    sealed = machine.fill("abc", 1.2).aggregated()
    assert not sealed.is_filtered
    machine.commit(1.3)
    assert machine.state.is_primed


def test_round_in_which_others_do_not_come_is_given_to_the_rule_at_the_soft_deadline() -> None:
    machine = primed()
    opened = machine.state.since
    machine.fill("a", 0.5).feed(Filtered({"a": "too fast"}), 0.5)
    tick = next_tick(machine.state, machine.options)
    assert tick == opened + machine.state.soft_deadline_s
    machine.feed(Tick(), tick)
    assert not machine.state.is_primed
    assert machine.state.phase is Phase.COLLECTING


def test_filter_is_not_used_with_fewer_workers_than_it_needs() -> None:
    machine = primed()
    machine.feed(present("a", "b", "c")).fill("a", 1.0)
    machine.commit(1.0)
    assert machine.state.phase is Phase.WAITING
    assert machine.state.reason == "waits for workers: 3 workers are too few"
    machine.feed(present("a", "b", "c", "e"), 2.0).feed(Tick(), 9.0)
    assert machine.state.phase is Phase.COLLECTING


# --- switching ------------------------------------------------------------------------------


def test_mode_is_switched_where_a_round_opens_and_not_before() -> None:
    machine = collecting(options=MANY).fill("ab", 0.5).switch(HYBRID, 0.6)
    assert machine.state.setting.mode is SYNC
    assert machine.state.requested.mode is HYBRID
    machine.fill("cd", 0.7)
    assert machine.aggregated().setting.mode is SYNC
    machine.commit(0.8)
    assert (machine.state.setting.mode, machine.state.setting.mode_epoch) == (HYBRID, 1)


def test_mode_is_switched_at_once_while_no_round_is_open() -> None:
    machine = Machine(MANY).feed(present("a", "b")).switch(HYBRID).feed(present(*"abcd"), 1.0)
    assert machine.state.setting.mode is HYBRID


def test_round_that_cannot_be_finished_is_switched_when_it_reopens() -> None:
    machine = collecting(options=MANY).fill("a", 0.5).switch(HYBRID, 0.6)
    machine.feed(Tick(), 10.0)
    assert machine.state.setting.mode is HYBRID
    assert machine.state.slots == {}  # signed for another mode: it is called back
    assert any(isinstance(effect, Recall) for effect in machine.effects)


def test_back_to_synchronous_everything_in_flight_ends() -> None:
    machine = hybrid().fill("abc", 0.5).fill("d", 0.6, made_for=1)
    arriving = machine.offer("b", b"newer", made_for=2)
    machine.switch(SYNC, 0.65).commit(0.7)
    assert machine.state.setting.mode is SYNC
    assert machine.state.slots == {}
    assert machine.feed(arriving, 0.8).answer() is ReplyCode.STALE_LEASE
    machine.fill("abcd", 1.0)
    sealed = machine.aggregated()
    assert [sealed.lag(worker) for worker in sealed.contributors] == [0, 0, 0, 0]


def test_request_of_an_older_epoch_is_ignored() -> None:
    machine = collecting(options=MANY)
    first = machine.state.requested
    machine.switch(HYBRID).switch(ASYNC)
    newest = machine.state.requested
    for setting in (first, first.followed_by(SYNC, "late")):
        machine.feed(ModeRequested(setting))
    assert machine.state.requested == newest


def test_flapping_requests_leave_the_rounds_in_the_last_one() -> None:
    machine = collecting(options=MANY)
    for _ in range(50):
        machine.switch(HYBRID).switch(SYNC).switch(ASYNC)
    machine.fill("abcd", 0.5).commit(0.6)
    assert (machine.state.setting.mode, machine.state.setting.mode_epoch) == (ASYNC, 150)


# --- histories ------------------------------------------------------------------------------


@dataclass
class Life:
    """Workers, a network and a stepper at random, and what must hold whatever they do."""

    rng: random.Random
    machine: Machine
    now: float = 0.0
    here: dict[str, bytes] = field(default_factory=dict)
    flying: list[Offered] = field(default_factory=list)
    receiving: list[Offered] = field(default_factory=list)
    settled: set[tuple[str, int]] = field(default_factory=set)
    leases: dict[tuple[str, bytes, int], int] = field(default_factory=dict)
    counted: set[int] = field(default_factory=set)
    commits: int = 0
    lives: int = 0

    def step(self) -> None:
        self.now += self.rng.choice([0.0, 0.0, 0.01, 0.1, 1.0])
        self.feed(self.rng.choice(self.events())())

    def events(self) -> list[Callable[[], Event]]:
        state = self.machine.state
        possible: list[Callable[[], Event]] = [Tick, self.compute, self.compute]
        if len(self.here) < 4 or self.rng.random() < 0.05:
            possible.append(self.members_change)
        if self.flying:
            possible += [self.deliver, self.deliver, self.deliver]
        if self.receiving:
            possible += [self.complete, self.complete, self.break_off]
        if state.phase is Phase.AGGREGATING:
            possible += [self.aggregate] * 4
        if state.phase is Phase.COMMITTING:
            possible += [self.machine.committed] * 4
        if self.rng.random() < 0.03:
            possible.append(self.request)
        return possible

    def members_change(self) -> MembersChanged:
        worker = self.rng.choice("abcdef")
        if self.rng.random() < 0.7 or worker not in self.here:
            self.lives += 1
            self.here[worker] = self.here.get(worker) or self.lives.to_bytes(16)
        elif len(self.here) > 4:
            del self.here[worker]
        return MembersChanged(dict(self.here))

    def compute(self) -> Event:
        """A worker has a gradient for a recent version; it sends the same one again at will."""
        if self.here:
            worker = self.rng.choice(sorted(self.here))
            made_for = max(1, self.machine.state.round - self.rng.choice([0, 0, 0, 0, 1, 2, 3]))
            lease = self.lease(worker, made_for)
            if lease is not None:
                root = f"{worker} {made_for} {lease}".encode()
                if self.rng.random() < 0.02:
                    root += b" a lie"
                self.flying.append(Offered(worker, self.here[worker], root, made_for, lease))
        return Tick()

    def lease(self, worker: str, made_for: int) -> int | None:
        """The lease of a worker's gradient for a round, which it was told when it began."""
        task = (worker, self.here[worker], made_for)
        if task not in self.leases:
            self.feed(Asked(worker))
            lease = self.machine.state.leases.of(worker)
            if lease is None:
                return None
            self.leases[task] = lease
        return self.leases[task]

    def deliver(self) -> Event:
        """Let a message reach the machine, if admission would let it."""
        offer = self.rng.choice(self.flying)
        if self.rng.random() < 0.8:  # else the network brings it once more later
            self.flying.remove(offer)
        state = self.machine.state
        gathering = self.machine.options.gatherings.of(state.setting.mode, state.is_primed)
        joined = state.joined if gathering.lag_max else state.round
        self.flying = self.flying[-12:]
        too_old = joined - offer.round > gathering.lag_max
        is_settled = (offer.worker, offer.round) in self.settled
        if too_old or is_settled or offer.round > self.commits + 1:
            return Tick()
        self.receiving.append(offer)
        return offer

    def complete(self) -> Event:
        offer = self.receiving.pop(self.rng.randrange(len(self.receiving)))
        return Refused(offer, "NaN") if self.rng.random() < 0.1 else Received(offer)

    def break_off(self) -> Event:
        return Broken(self.receiving.pop(self.rng.randrange(len(self.receiving))))

    def aggregate(self) -> Event:
        sealed = self.machine.state.sealed
        assert sealed is not None
        if sealed.is_filtered and self.rng.random() < 0.4:
            return Filtered(dict.fromkeys(sealed.contributors, "too fast"))
        return AggregationFailed("bad") if self.rng.random() < 0.05 else Aggregated()

    def request(self) -> Event:
        mode = self.rng.choice(list(Mode))
        return ModeRequested(self.machine.state.requested.followed_by(mode, "at random"))

    def feed(self, event: Event) -> None:
        before = self.machine.state
        self.machine.feed(event, self.now)
        state = self.machine.state
        for effect in self.machine.effects:
            if isinstance(effect, Answer) and effect.code is ReplyCode.STALE_LEASE:
                assert isinstance(event, Offered)
                self.leases.pop((event.worker, event.incarnation, event.round), None)
            if isinstance(effect, Aggregate):
                self.expect_enough(effect)
            if isinstance(effect, Publish):
                assert before.phase is Phase.COMMITTING
                assert before.sealed is not None
                slots = {(w, s.offer.round) for w, s in before.sealed.slots.items()}
                assert not slots & self.settled, "a slot was counted twice"
                self.settled |= slots
                self.commits += 1
                assert isinstance(event, Committed)
                self.expect_counted_once(before.sealed, event)
        assert state.reason
        assert state.phase in (Phase.HALTED, Phase.FINISHED) or state.round == self.commits + 1
        assert state.setting.mode_epoch >= before.setting.mode_epoch
        if state.setting != before.setting:
            assert state.attempt != before.attempt or state.round != before.round
        assert not set(state.slots) & set(state.sealed.slots if state.sealed else ())

    def expect_counted_once(self, sealed: Sealed, committed: Committed) -> None:
        counted = [slot.offer.lease for w, slot in sealed.slots.items() if w not in sealed.refused]
        assert len(set(counted)) == len(counted)
        assert not self.counted & set(counted), "a batch was counted twice"
        self.counted |= set(counted)
        assert all(map(committed.cursor.is_done, counted))
        assert len(committed.cursor.left) <= 3 * 6, "batches are left behind"

    def expect_enough(self, effect: Aggregate) -> None:
        sealed = effect.sealed
        gathering = self.machine.options.gatherings.of(
            sealed.setting.mode, is_primed=sealed.is_filtered
        )
        if sealed.setting.mode is ASYNC and not sealed.is_filtered:
            gathering = self.machine.options.gatherings.of(ASYNC, is_primed=False)
        rows = gathering.rows(list(sealed.slots), sealed.contributors, sealed.places)
        assert gathering.shortage(rows) is None
        for worker in sealed.slots:
            assert 0 <= sealed.lag(worker) <= gathering.lag_max
        assert not set(sealed.contributors) & set(sealed.refused)


@pytest.mark.parametrize("options", [MANY, BUFFERED], ids=["filter", "buffers"])
@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_no_slot_counts_twice_and_no_bound_is_broken(
    seed: int, options: RoundOptions
) -> None:
    patient = replace(options, aborts_max=10**6)
    life = Life(random.Random(seed), Machine(patient, random.Random(seed).choice(list(Mode))))
    for _ in range(3000):
        life.step()
    assert life.commits > 15, f"seed {seed}: {life.machine.state}"
