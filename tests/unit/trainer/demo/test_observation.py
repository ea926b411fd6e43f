"""What is learned from a leader's snapshots, and what becomes an event."""

from collections.abc import Iterable
from typing import Any

import pytest

from pliska.trainer.demo.facts import EventKind, Measurement
from pliska.trainer.demo.jobs import DemoJob, RunName
from pliska.trainer.demo.journal import Journal
from pliska.trainer.demo.observation import Observation

JOB = DemoJob(RunName.ROBUST, "demo-robust", "multi-krum", 20, "", ("w1", "w2"), ("w2",))


def snapshot(
    version: int,
    suspects: Iterable[str] = (),
    leader: str = "c1",
    epoch: int = 1,
    accuracy: float | None = None,
) -> dict[str, Any]:
    return {
        "coordinator": leader,
        "epoch": epoch,
        "version": version,
        "reason": f"collects round {version + 1}",
        "accuracy": [] if accuracy is None else [{"version": version, "accuracy": accuracy}],
        "workers": [{"worker": w, "is_suspected": w in suspects} for w in ("w1", "w2")],
    }


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def observation(journal: Journal) -> Observation:
    return Observation(JOB, journal)


def texts(journal: Journal, kind: EventKind) -> list[str]:
    return [event.text for event in journal.events if event.kind is kind]


def test_nothing_is_known_before_the_first_snapshot(observation: Observation) -> None:
    shown = observation.snapshot
    assert (shown.round, shown.rounds, shown.accuracy, shown.leader) == (0, 20, None, None)


def test_snapshot_of_the_leader_is_what_is_shown(observation: Observation) -> None:
    observation.take(snapshot(7, suspects=["w2"], accuracy=0.5))
    shown = observation.snapshot
    assert (shown.round, shown.leader, shown.accuracy) == (7, "c1", 0.5)
    assert shown.suspects == ("w2",)


def test_leader_that_does_not_answer_is_shown_as_none(observation: Observation) -> None:
    observation.take(snapshot(7))
    observation.miss()
    assert observation.leader is None
    assert observation.snapshot.round == 7


def test_measurements_of_all_leaders_make_one_curve(observation: Observation) -> None:
    observation.take(snapshot(2, accuracy=0.3))
    observation.take(snapshot(6, leader="c2", epoch=2, accuracy=0.7))
    observation.take(snapshot(4, leader="c2", epoch=2, accuracy=0.5))
    observation.conclude(0.9)
    assert observation.curve == (
        Measurement(2, 0.3),
        Measurement(4, 0.5),
        Measurement(6, 0.7),
        Measurement(20, 0.9),
    )
    assert observation.snapshot.round == 20


def test_worker_is_flagged_once_whoever_leads(observation: Observation, journal: Journal) -> None:
    observation.take(snapshot(3, suspects=["w2"]))
    observation.take(snapshot(4, suspects=["w2"]))
    observation.take(snapshot(10, leader="c2", epoch=2))
    observation.take(snapshot(12, suspects=["w2"], leader="c2", epoch=2))
    assert texts(journal, EventKind.FLAGGED) == ["w2 suspected"]
    assert texts(journal, EventKind.CLEARED) == []
    assert observation.flagged == {"w2"}
    assert observation.suspects == {"w2"}


def test_worker_that_one_leader_clears_was_flagged(
    observation: Observation, journal: Journal
) -> None:
    observation.take(snapshot(3, suspects=["w1", "w2"]))
    observation.take(snapshot(9, suspects=["w2"]))
    assert texts(journal, EventKind.CLEARED) == ["w1 no longer suspected"]
    assert observation.flagged == {"w1", "w2"}
    assert observation.suspects == {"w2"}


def test_first_leader_is_an_event_and_the_next_is_the_drills(
    observation: Observation, journal: Journal
) -> None:
    observation.take(snapshot(1))
    observation.miss()
    observation.take(snapshot(2, leader="c2", epoch=2))
    assert texts(journal, EventKind.LED) == ["c1 leads"]


def test_events_carry_the_round_and_rising_times(
    observation: Observation, journal: Journal
) -> None:
    observation.take(snapshot(3))
    observation.take(snapshot(5, suspects=["w2"]))
    led, flagged = journal.events
    assert (led.round, flagged.round) == (3, 5)
    assert 0 <= led.elapsed_s <= flagged.elapsed_s <= journal.elapsed_s
