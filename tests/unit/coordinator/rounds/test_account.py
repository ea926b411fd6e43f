"""What the record of a round says of its workers."""

from training.machine import collecting

from pliska.coordinator.records.attendance import Arrival
from pliska.coordinator.rounds.account import attendance_of
from pliska.coordinator.rounds.reputation import Quarantine
from pliska.coordinator.rounds.round_events import Tick

NOBODY = Quarantine(kept_out={}, spared={})


def test_attendance_says_who_came_when_and_who_did_not_come() -> None:
    machine = collecting("a", "b", "c", "d").fill("b", 0.25).fill("ca", 0.5).feed(Tick(), 2.0)
    attendance = attendance_of(machine.aggregated(), NOBODY)
    assert attendance.arrivals == (
        Arrival(worker="a", after_s=0.5),
        Arrival(worker="b", after_s=0.25),
        Arrival(worker="c", after_s=0.5),
    )
    assert attendance.absent == ("d",)
    assert (attendance.excluded, attendance.spared) == ((), ())


def test_worker_that_is_kept_out_is_excluded_and_not_absent() -> None:
    quarantine = Quarantine(kept_out={"d": "it lied", "e": "so did it"}, spared={"a": "needed"})
    machine = collecting("a", "b", "c", "d").fill("abc", 0.5).feed(Tick(), 2.0)
    attendance = attendance_of(machine.aggregated(), quarantine)
    assert attendance.absent == ()
    assert attendance.excluded == ("d", "e")
    assert attendance.spared == ("a",)


def test_gradient_that_came_before_its_worker_was_kept_out_counts_as_having_come() -> None:
    machine = collecting().fill("abcd", 0.5)
    attendance = attendance_of(machine.aggregated(), Quarantine({"a": "it lied"}, {}))
    assert attendance.excluded == ()
    assert [arrival.worker for arrival in attendance.arrivals] == ["a", "b", "c", "d"]
