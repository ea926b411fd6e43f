"""How rounds fill, read off a job."""

import pytest
from training.toy_job import toy_job

from pliska.aggregation import rule_named
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.rounds.gathering import Gathering, Gatherings
from pliska.coordinator.training.floor import Floor

WORKERS = ("w1", "w2", "w3", "w4", "w5")


def gatherings_of(more: str = "", rule: str = 'name = "trimmed-mean", f = 1') -> Gatherings:
    job = toy_job(workers=5, quorum=4, rule=rule, more=more)
    return Gatherings.of_job(job, rule_named(job.rule.name, **job.rule.parameters), 9)


def test_synchronous_rounds_take_nothing_old_and_wait_for_everybody() -> None:
    gathering = gatherings_of().of(Mode.SYNCHRONOUS, is_primed=True)
    assert gathering.lag_max == 0
    assert not gathering.is_full(99)
    assert gathering.shortage(3) == "3 of 4 gradients"
    assert gathering.shortage(4) is None


def test_hybrid_rounds_are_full_with_their_buffer_or_the_quorum() -> None:
    assert gatherings_of().hybrid.rows_full == 4
    hybrid = gatherings_of("[hybrid]\nbuffer = 5\nstaleness_max = 3\ndamping = 1.0").hybrid
    assert (hybrid.rows_full, hybrid.lag_max, hybrid.damping) == (5, 3, 1.0)
    assert hybrid.shortage(4) is None  # at the soft deadline
    assert [hybrid.is_full(rows) for rows in (4, 5)] == [False, True]


def test_asynchronous_rounds_have_as_many_buffers_as_the_rule_needs() -> None:
    gathering = gatherings_of().of(Mode.ASYNCHRONOUS, is_primed=False)
    assert (gathering.buffers, gathering.rows_full, gathering.rows_least) == (3, 3, 3)
    assert not gathering.is_filtered
    four = gatherings_of("[asynchronous]\nbuffers = 4").asynchronous
    assert (four.buffers, four.rows_full, four.rows_least) == (4, 4, 3)


def test_one_buffer_is_filtered_once_the_filter_is_primed() -> None:
    gatherings = gatherings_of("[asynchronous]\nbuffers = 1")
    priming = gatherings.of(Mode.ASYNCHRONOUS, is_primed=False)
    assert (priming.is_filtered, priming.rows_full, priming.lag_max) == (False, 4, 16)
    filtered = gatherings.of(Mode.ASYNCHRONOUS, is_primed=True)
    assert (filtered.is_filtered, filtered.rows_full) == (True, 1)
    assert filtered.workers_least == 4
    assert filtered.shortage_of_workers(4) is None
    shortage = filtered.shortage_of_workers(3)
    assert shortage is not None
    assert "n >= 3f + 1" in shortage


def test_each_worker_has_one_buffer_and_each_buffer_about_as_many_workers() -> None:
    places = gatherings_of().asynchronous.places(WORKERS)
    assert places == gatherings_of().asynchronous.places(WORKERS[::-1])
    assert sorted(places.values()) == [0, 0, 1, 1, 2]
    assert gatherings_of().hybrid.places(WORKERS) == {}


def test_rows_are_gradients_or_buffers_or_what_the_filter_has_yet_to_judge() -> None:
    gatherings = gatherings_of()
    settled, filled = ["w1", "w2", "w4"], ["w1", "w2"]
    places = gatherings.asynchronous.places(WORKERS)
    assert gatherings.synchronous.rows(settled, filled, {}) == 3
    assert gatherings.asynchronous.rows(settled, filled, places) == 2  # w1 and w4 share one
    filtered = gatherings_of("[asynchronous]\nbuffers = 1").asynchronous
    assert filtered.rows(settled, filled, filtered.places(WORKERS)) == 2


@pytest.mark.parametrize("there", [0, 1, 2, 3])
def test_round_does_not_open_below_what_it_needs(there: int) -> None:
    gathering = Gathering(4, Floor({}))
    assert gathering.shortage_of_workers(there) == f"{there} of 4 are here"
    assert gathering.shortage_of_workers(4) is None
