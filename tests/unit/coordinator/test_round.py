"""The round machine, event by event. Times are seconds on an invented clock."""

import random
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliska.coordinator.floor import Floor
from pliska.coordinator.gathering import Gathering, Gatherings
from pliska.coordinator.mode import Mode, ModeSetting
from pliska.coordinator.round import advance, next_tick
from pliska.coordinator.round_state import (
    Aggregate,
    Aggregated,
    AggregationFailed,
    Answer,
    Broken,
    Commit,
    Committed,
    Effect,
    Event,
    MembersChanged,
    Offered,
    Opened,
    Phase,
    Publish,
    Received,
    Refused,
    RoundOptions,
    RoundState,
    Sealed,
    SlotState,
    Tick,
)
from pliska.coordinator.wire import ReplyCode


def options_of(
    *, quorum: int = 3, rounds: int = 2, hybrid: Gathering | None = None, buffers: int = 1
) -> RoundOptions:
    """Four workers, a rule that needs three rows, and a filter that needs four workers."""
    rule, enough = Floor({n: f"{n} rows are too few" for n in range(3)}), Floor({})
    filtered = Floor({n: f"{n} workers are too few" for n in range(4)})
    late = Gathering(quorum, rule, rows_full=quorum, lag_max=2, damping=0.5)
    free = (
        Gathering(1, enough, 1, 2, 0.5, buffers=1, is_filtered=True, members=filtered)
        if buffers == 1
        else Gathering(buffers, rule, buffers, 2, 0.5, buffers=buffers)
    )
    priming = Gathering(quorum, rule, quorum, 2, 0.5, members=filtered)
    return RoundOptions(
        workers=4,
        gatherings=Gatherings(Gathering(quorum, rule), hybrid or late, free, priming),
        soft_deadline_s=2.0,
        deadline_s=10.0,
        rounds=rounds,
        aborts_max=3,
    )


OPTIONS = options_of()
QUORUM = OPTIONS.gatherings.synchronous.rows_least
FIRST_LIFE = b"1" * 16
SECOND_LIFE = b"2" * 16


class Machine:
    """Drives the machine and keeps the effects of the last event."""

    def __init__(
        self, options: RoundOptions = OPTIONS, mode: Mode = Mode.SYNCHRONOUS
    ) -> None:
        self.options = options
        setting = ModeSetting(mode)
        self.state = RoundState(
            round=1, expected=options.workers, since=0.0, setting=setting, requested=setting
        )
        self.effects: tuple[Effect, ...] = ()

    def feed(self, event: Event, now: float = 0.0) -> "Machine":
        step = advance(self.state, event, now, self.options)
        self.state, self.effects = step.state, step.effects
        return self

    def offer(
        self, worker: str, root: bytes = b"", life: bytes = FIRST_LIFE, made_for: int | None = None
    ) -> Offered:
        """Offer a gradient, unless it says otherwise for the round at hand."""
        return Offered(worker, life, root or worker.encode(), made_for or self.state.round)

    def fill(
        self, workers: Iterable[str], now: float = 0.0, made_for: int | None = None
    ) -> "Machine":
        for worker in workers:
            offer = self.offer(worker, made_for=made_for)
            self.feed(offer, now)
            self.feed(Received(offer), now)
        return self

    def commit(self, now: float = 0.0) -> "Machine":
        return self.feed(Aggregated(), now).feed(Committed(), now)

    def aggregated(self) -> Sealed:
        """The round that the last event closed."""
        (sealed,) = [effect.sealed for effect in self.effects if isinstance(effect, Aggregate)]
        return sealed

    def contributors(self) -> tuple[str, ...]:
        return self.aggregated().contributors

    def answer(self) -> ReplyCode:
        (code,) = [effect.code for effect in self.effects if isinstance(effect, Answer)]
        return code


def present(*workers: str, life: bytes = FIRST_LIFE) -> MembersChanged:
    return MembersChanged(dict.fromkeys(workers, life))


def collecting(*workers: str) -> Machine:
    return Machine().feed(present(*(workers or ("a", "b", "c", "d"))))


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
    machine.feed(Aggregated()).feed(Committed())
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
    machine.feed(Committed(), 1.0)
    assert machine.effects == (Publish(), Opened(()))
    assert machine.state.round == 2
    assert machine.state.slots == {}


def test_job_finishes_after_its_last_round() -> None:
    machine = collecting()
    for _ in range(OPTIONS.rounds):
        machine.fill("abcd").feed(Aggregated()).feed(Committed())
    assert machine.state.phase is Phase.FINISHED
    assert machine.effects == (Publish(),)
    assert next_tick(machine.state, OPTIONS) is None


WORKERS = "abcde"


def events() -> st.SearchStrategy[Event]:
    offers = st.builds(
        Offered,
        st.sampled_from(WORKERS),
        st.sampled_from([FIRST_LIFE, SECOND_LIFE]),
        st.sampled_from([b"one", b"two"]),
        st.integers(1, 3),
    )
    members: st.SearchStrategy[Mapping[str, bytes]] = st.dictionaries(
        st.sampled_from(WORKERS), st.sampled_from([FIRST_LIFE, SECOND_LIFE])
    )
    return st.one_of(
        offers,
        st.builds(Received, offers),
        st.builds(Refused, offers, st.just("NaN")),
        st.builds(Broken, offers),
        st.builds(MembersChanged, members),
        st.sampled_from([Tick(), Aggregated(), Committed(), AggregationFailed("bad")]),
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(events(), st.floats(0, 3)), max_size=60))
def test_whatever_happens_the_invariants_hold(history: list[tuple[Event, float]]) -> None:
    machine = Machine()
    now = 0.0
    commits = 0
    for event, elapsed in history:
        now += elapsed
        before = machine.state
        machine.feed(event, now)
        for effect in machine.effects:
            if isinstance(effect, Aggregate):
                assert len(effect.contributors) + len(effect.refused) >= OPTIONS.quorum
                assert not set(effect.contributors) & set(effect.refused)
                for worker in effect.contributors:
                    assert machine.state.slots[worker].state is SlotState.FILLED
            if isinstance(effect, Publish):
                assert before.phase is Phase.COMMITTING
                commits += 1
        assert machine.state.round == min(commits + 1, OPTIONS.rounds)
        assert machine.state.reason
        # A filled slot stays filled with the same gradient until the round ends or it is frozen.
        if machine.state.round == before.round and machine.state.aborts == before.aborts:
            for worker, slot in before.slots.items():
                if slot.state is SlotState.FILLED and machine.state.phase is not Phase.FINISHED:
                    assert machine.state.slots[worker].offer == slot.offer
