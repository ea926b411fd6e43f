"""When a job goes to another mode by itself."""

import pytest
from training.toy_job import toy_job

from pliska.aggregation import rule_named
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.rounds.gathering import Gatherings
from pliska.coordinator.rounds.mode_policy import Leaning, Measured, is_due, lean

SYNC, HYBRID, ASYNC = Mode.SYNCHRONOUS, Mode.HYBRID, Mode.ASYNCHRONOUS


def gatherings_of(more: str = "") -> Gatherings:
    job = toy_job(workers=10, quorum=7, rule='name = "trimmed-mean", f = 2', more=more)
    return Gatherings.of_job(job, rule_named(job.rule.name, **job.rule.parameters), 12)


GATHERINGS = gatherings_of()
FILTERED = gatherings_of("[asynchronous]\nbuffers = 1")


@pytest.mark.parametrize(
    ("in_force", "stragglers", "wanted"),
    [
        (SYNC, 0, SYNC),
        (SYNC, 2, SYNC),  # between the thresholds nothing changes
        (HYBRID, 2, HYBRID),
        (SYNC, 3, HYBRID),
        (HYBRID, 3, HYBRID),
        (HYBRID, 1, SYNC),
        (ASYNC, 1, SYNC),
        (SYNC, 4, ASYNC),  # six prompt ones never fill a buffer of seven
        (HYBRID, 4, ASYNC),
        (ASYNC, 3, HYBRID),
    ],
)
@pytest.mark.parametrize("gatherings", [GATHERINGS, FILTERED])
def test_what_the_stragglers_among_ten_workers_speak_for(
    gatherings: Gatherings, in_force: Mode, stragglers: int, wanted: Mode
) -> None:
    leaning = lean(None, in_force, Measured(5, 10, stragglers), gatherings)
    assert leaning.mode is wanted
    assert leaning.since == 5
    assert f"{stragglers} of 10" in leaning.reason


def test_no_mode_is_wanted_that_there_are_too_few_workers_for() -> None:
    leaning = lean(None, SYNC, Measured(5, 4, 2), GATHERINGS)
    assert leaning.mode is SYNC
    assert "too few" in leaning.reason
    filtered = lean(None, SYNC, Measured(5, 6, 2), FILTERED)  # the filter needs seven
    assert filtered.mode is SYNC
    assert lean(None, HYBRID, Measured(5, 0, 0), GATHERINGS).mode is HYBRID


def test_leaning_counts_from_the_first_round_in_a_row() -> None:
    leaning = None
    for number, stragglers in enumerate([3, 3, 0, 3, 3, 3], start=1):
        leaning = lean(leaning, SYNC, Measured(number, 10, stragglers), GATHERINGS)
    assert leaning is not None
    assert (leaning.mode, leaning.since) == (HYBRID, 4)


@pytest.mark.parametrize(("round_number", "due"), [(4, False), (8, False), (9, True)])
def test_it_is_time_after_patience_and_not_before(round_number: int, due: bool) -> None:
    leaning = Leaning(HYBRID, 4, "why")
    assert is_due(leaning, SYNC, round_number, patience=5) is due
    assert not is_due(leaning, HYBRID, round_number, patience=5)


def test_share_that_swings_between_the_thresholds_never_switches() -> None:
    in_force, leaning, switches = SYNC, None, 0
    for number in range(200):
        stragglers = 3 if number % 4 else 2  # 30 % and 20 %
        leaning = lean(leaning, in_force, Measured(number, 10, stragglers), GATHERINGS)
        if is_due(leaning, in_force, number, patience=5):
            in_force, switches = leaning.mode, switches + 1
    assert switches <= 1
