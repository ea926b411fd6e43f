"""Which lease a gradient has to name, from the opening of a round to its commit, in each mode."""

from collections.abc import Iterable

from training.machine import FIRST_LIFE, SECOND_LIFE, Machine, collecting, options_of, present

from pliska.coordinator.records.data_leases import DataCursor, DataLeases
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.rounds.round_events import (
    Aggregated,
    AggregationFailed,
    Answer,
    Asked,
    Broken,
    MembersChanged,
    Received,
    Tick,
)
from pliska.coordinator.rounds.round_state import Offered
from pliska.coordinator.wire import ReplyCode

MANY = options_of(rounds=1000)


def synchronous() -> Machine:
    return collecting(options=MANY)


def hybrid() -> Machine:
    return collecting(mode=Mode.HYBRID, options=MANY)


def held(machine: Machine) -> dict[str, int]:
    return {worker: each.lease for worker, each in machine.state.leases.held.items()}


def asked(machine: Machine, worker: str) -> int | None:
    machine.feed(Asked(worker))
    return machine.state.leases.of(worker)


def turned_back(machine: Machine, offer: Offered) -> Answer:
    """Offer what has to be refused; return the answer."""
    before = machine.state.slots
    (answer,) = machine.feed(offer).effects
    assert isinstance(answer, Answer)
    assert answer.code is ReplyCode.STALE_LEASE
    assert machine.state.slots == before
    return answer


def offer(worker: str, round_number: int, lease: int, life: bytes = FIRST_LIFE) -> Offered:
    return Offered(worker, life, f"{worker} {lease}".encode(), round_number, lease)


def arrive(machine: Machine, *offers: Offered) -> None:
    for each in offers:
        machine.feed(each)
        assert machine.answer() is ReplyCode.ACCEPTED, each
        machine.feed(Received(each))


# --- synchronous ----------------------------------------------------------------------------


def test_opening_leases_a_batch_to_every_member_and_nobody_else() -> None:
    machine = Machine(MANY).feed(present("a", "b"))
    assert held(machine) == {}
    assert asked(machine, "a") is None
    machine.feed(present(*"abcd"))
    assert held(machine) == {"b": 0, "c": 1, "d": 2, "a": 3}
    machine.feed(present(*"abcde"))
    assert asked(machine, "e") is None


def test_leases_follow_from_cursor_members_and_round_whoever_hurried_before() -> None:
    def after(order: Iterable[str]) -> dict[str, int]:
        machine = synchronous().fill(order).commit()
        return held(machine)

    assert after("abcd") == after("dcba") == {"c": 4, "d": 5, "a": 6, "b": 7}


def test_new_leader_gives_the_leases_that_the_last_one_gave() -> None:
    machine = synchronous().fill("abc").feed(Tick(), 2.0).commit(2.1)
    state = machine.state
    successor = Machine(MANY)
    leases = DataLeases(DataCursor(state.leases.cursor.end, state.leases.cursor.left))
    successor.state = type(state)(round=2, expected=4, since=0.0, leases=leases)
    successor.feed(present(*"abcd"))
    assert held(successor) == held(machine)
    assert 2 in held(successor).values()  # what d computed in the first round did not count


def test_gradient_of_another_batch_is_turned_back_and_told_the_right_one() -> None:
    machine = synchronous()
    answer = turned_back(machine, offer("a", 1, held(machine)["b"]))
    assert answer.lease == held(machine)["a"]
    assert answer.reason == "computed on the batch of lease 0; it holds lease 3"
    arrive(machine, offer("a", 1, 3))


def test_gradient_of_another_batch_does_not_spoil_the_one_that_is_here() -> None:
    machine = synchronous()
    arrive(machine, offer("a", 1, 3))
    assert turned_back(machine, offer("a", 1, 2)).lease == 3
    machine.feed(offer("a", 1, 3))
    assert machine.answer() is ReplyCode.DUPLICATE
    machine.feed(Offered("a", FIRST_LIFE, b"a lie", 1, 3))
    assert machine.answer() is ReplyCode.EQUIVOCATION


def test_round_that_opens_again_leaves_leases_with_those_who_stayed() -> None:
    machine = synchronous()
    before = held(machine)
    arrive(machine, offer("a", 1, before["a"]))
    machine.feed(present("a", "b", "e")).feed(Tick(), 10.0)
    assert machine.state.attempt == 2
    after = held(machine)
    assert (after["a"], after["b"]) == (before["a"], before["b"])
    assert after["e"] == min(before["c"], before["d"])


def test_lease_of_a_gradient_whose_worker_left_is_not_given_away() -> None:
    machine = synchronous()
    leases = held(machine)
    arrive(machine, offer("d", 1, leases["d"]))
    machine.feed(present("a", "b", "e")).feed(Tick(), 10.0)
    assert machine.state.attempt == 2
    assert leases["d"] not in held(machine).values()
    assert held(machine)["e"] == leases["c"]


def test_aborted_round_takes_the_same_gradients_again() -> None:
    machine = synchronous()
    leases = held(machine)
    machine.fill("abcd").feed(AggregationFailed("bad rows"))
    assert held(machine) == leases
    arrive(machine, offer("a", 1, leases["a"]))


def test_late_and_refused_gradients_give_their_leases_back_to_the_next_round() -> None:
    machine = synchronous()
    leases = held(machine)
    machine.fill("abc").feed(Tick(), 2.0).commit(2.1)
    assert machine.state.leases.cursor == DataCursor(4, (leases["d"],))
    assert leases["d"] in held(machine).values()


# --- where gradients may come late ----------------------------------------------------------


def test_who_asks_is_leased_the_lowest_batch_at_once_and_keeps_it() -> None:
    machine = hybrid()
    assert held(machine) == {}
    assert [asked(machine, worker) for worker in "dcab"] == [0, 1, 2, 3]
    assert asked(machine, "d") == 0
    assert asked(machine, "stranger") is None


def test_next_lease_comes_while_the_last_gradient_is_under_way() -> None:
    machine = hybrid()
    first = asked(machine, "a")
    assert first == 0
    offered = offer("a", 1, first)
    machine.feed(offered)
    assert asked(machine, "a") == first  # it may have to send it once more
    machine.feed(Received(offered))
    assert asked(machine, "a") == 1
    machine.feed(offered)
    assert machine.answer() is ReplyCode.DUPLICATE


def test_gradient_is_counted_late_with_the_lease_of_its_round() -> None:
    machine = hybrid()
    late = asked(machine, "d")
    assert late == 0
    machine.fill("abc").commit()
    assert machine.state.leases.cursor == DataCursor(4, (0,))
    assert asked(machine, "d") == late
    arrive(machine, offer("d", 1, late))
    machine.fill("ab").commit()
    assert machine.state.leases.cursor == DataCursor(6)


def test_lease_of_a_worker_that_left_goes_to_whoever_asks_next() -> None:
    machine = hybrid()
    assert asked(machine, "d") == 0
    machine.fill("abc").feed(present("a", "b", "c")).commit()
    assert asked(machine, "a") == 0


def test_lease_that_was_not_heard_of_for_too_long_goes_to_another_worker() -> None:
    machine = hybrid()
    assert asked(machine, "d") == 0
    for _ in range(2):
        machine.fill("abc").commit()
        assert held(machine)["d"] == 0
    machine.fill("abc").commit()
    assert "d" not in held(machine)
    assert asked(machine, "b") == 0
    answer = turned_back(machine, offer("d", machine.state.round, 0))
    assert answer.lease == held(machine)["d"]
    assert answer.lease not in (0, None)


def test_lease_of_a_transfer_that_broke_off_stays_with_its_worker() -> None:
    machine = hybrid()
    lease = asked(machine, "a")
    assert lease == 0
    machine.feed(offer("a", 1, lease)).feed(Broken(offer("a", 1, lease)))
    arrive(machine, offer("a", 1, lease))


def test_abort_gives_the_leases_of_its_gradients_to_whoever_comes_again() -> None:
    machine = hybrid().fill("abc").feed(AggregationFailed("bad rows"))
    assert {asked(machine, each) for each in "abc"} == {0, 1, 2}


def test_restarted_worker_goes_on_with_the_lease_of_its_earlier_life() -> None:
    machine = hybrid()
    lease = asked(machine, "a")
    assert lease == 0
    machine.feed(offer("a", 1, lease))  # and dies while it sends
    lives = {**dict.fromkeys("bcd", FIRST_LIFE), "a": SECOND_LIFE}
    machine.feed(MembersChanged(lives)).fill("bcd").commit()
    assert asked(machine, "a") == lease
    arrive(machine, offer("a", 2, lease, SECOND_LIFE))


# --- between modes --------------------------------------------------------------------------


def test_switch_to_late_gradients_keeps_what_is_being_computed() -> None:
    machine = synchronous()
    lease = held(machine)["d"]
    machine.switch(Mode.HYBRID).feed(present("a", "b", "d")).feed(Tick(), 10.0)
    assert machine.state.setting.mode is Mode.HYBRID
    assert asked(machine, "d") == lease


def test_switch_to_synchronous_deals_all_leases_anew() -> None:
    machine = hybrid()
    assert asked(machine, "d") == 0
    machine.fill("abc").switch(Mode.SYNCHRONOUS).feed(Aggregated())
    machine.feed(machine.committed())
    assert held(machine) == {"c": 0, "d": 4, "a": 5, "b": 6}
