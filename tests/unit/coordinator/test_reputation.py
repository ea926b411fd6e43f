"""Suspicion over rounds."""

import math

import pytest

from pliska.coordinator.reputation import Conduct, ReputationOptions, Standing, judge

OPTIONS = ReputationOptions(memory_rounds=4.0)


def rounds_of(conduct: Conduct, count: int, start: Standing | None = None) -> Standing:
    standings = {"w": start or Standing()}
    for _ in range(count):
        standings = judge(standings, {"w": conduct}, OPTIONS)
    return standings["w"]


@pytest.mark.parametrize("deviation", [100.0, math.inf, math.nan, None])
def test_a_worker_that_keeps_lying_is_suspected_within_its_memory(deviation: float | None) -> None:
    assert not rounds_of(Conduct(deviation), 1).is_suspected
    assert rounds_of(Conduct(deviation), 4).is_suspected


def test_one_bad_round_does_not_make_a_suspect() -> None:
    standing = rounds_of(Conduct(1.0), 20, rounds_of(Conduct(None, "NaN"), 1))
    assert not standing.was_suspected
    assert standing.offences == 1
    assert standing.reason == "NaN"


def test_suspicion_fades_when_the_conduct_improves_but_the_past_is_remembered() -> None:
    suspect = rounds_of(Conduct(50.0), 10)
    assert rounds_of(Conduct(1.0), 2, suspect).is_suspected
    cleared = rounds_of(Conduct(1.0), 10, suspect)
    assert not cleared.is_suspected
    assert cleared.was_suspected


def test_a_worker_that_took_no_part_keeps_its_standing() -> None:
    before = {"a": Standing(suspicion=0.4, rounds=3)}
    assert judge(before, {"b": Conduct(1.0)}, OPTIONS)["a"] == before["a"]
