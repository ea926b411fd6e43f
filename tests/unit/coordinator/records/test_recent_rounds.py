"""What the newest records settle, in memory and read back after a failover."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from training.records import contribution, counted, digest_of, record, root_of

from pliska.coordinator.records.commit import FILTER
from pliska.coordinator.records.recent_rounds import (
    RECENT_MAX,
    RecentRounds,
    Settled,
    read_recent_rounds,
)
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.job import Job


def recent_of(count: int) -> RecentRounds:
    recent = RecentRounds(0, digest_of(0))
    for number in range(1, count + 1):
        recent.add(counted(number, ["w1", "w2"]))
    return recent


def test_gradient_is_settled_under_the_round_it_was_made_for() -> None:
    recent = recent_of(4)
    recent.add(record(5, [contribution("w3", 5, lag=2), contribution("w1", 5, verdict="refused")]))
    assert recent.settled(3, "w3") == Settled(5, root_of("w3", 3), is_counted=True)
    assert recent.settled(5, "w3") is None
    refused = recent.settled(5, "w1")
    assert refused is not None
    assert not refused.is_counted


def test_as_many_rounds_are_remembered_as_a_gradient_may_be_old() -> None:
    recent = recent_of(RECENT_MAX + 1)
    assert recent.settled(1, "w1") is None
    assert recent.settled(2, "w1") is not None
    assert recent.digest_of(0) is None
    assert recent.digest_of(1) == digest_of(1)
    assert recent.digest_of(RECENT_MAX + 1) == digest_of(RECENT_MAX + 1)
    # Whatever this leader still takes, it knows all rounds that could have counted it.
    assert all(
        recent.settled(round_number, "w1") is not None
        for round_number in range(2, RECENT_MAX + 2)
        if recent.digest_of(round_number - 1) is not None
    )


def test_whose_gradients_passed_the_filter_last() -> None:
    recent = recent_of(2)
    for number, worker in ((3, "w1"), (4, "w2"), (5, "w9")):
        left_out = contribution("w8", number, verdict="outvoted")
        recent.add(record(number, [contribution(worker, number), left_out], rule=FILTER))
    recent.add(counted(6, ["w1", "w2"]))  # decided by the rule
    assert recent.accepted(9) == ("w1", "w2", "w9")
    assert recent.accepted(1) == ("w9",)
    assert recent.accepted(0) == ()


def test_lags_are_those_of_what_was_counted() -> None:
    recent = RecentRounds(4, digest_of(4))
    recent.add(record(5, [contribution("a", 5, lag=2), contribution("b", 5, verdict="refused")]))
    assert recent.lags() == (2,)


@pytest.fixture
def leader(lead: Any, tiny_job: Callable[..., Job], tmp_path: Path) -> Any:
    return lead(tiny_job(), LocalStorage(tmp_path / "storage"))


def test_new_leader_reads_back_what_the_last_one_knew(leader: Any) -> None:
    known = RecentRounds(0, leader.model.parameters_digest())
    for _ in range(3):
        known.add(leader.run_round().record)
    back = read_recent_rounds(leader.head, leader.model.parameters_digest(), leader.log)
    for number in range(1, 4):
        assert back.settled(number, "w1") == known.settled(number, "w1") is not None
    for version in range(4):
        assert back.digest_of(version) == known.digest_of(version) is not None


def test_before_the_first_round_only_the_first_version_is_known(leader: Any) -> None:
    first = leader.model.parameters_digest()
    recent = read_recent_rounds(None, first, leader.log)
    assert recent.digest_of(0) == first
    assert recent.settled(1, "w1") is None


def test_what_lies_before_a_missing_record_is_too_old_to_be_taken(leader: Any) -> None:
    commits = [leader.run_round() for _ in range(4)]
    missing = commits[1]
    leader.storage.delete(leader.log.name(2, missing.digest))
    recent = read_recent_rounds(leader.head, leader.model.parameters_digest(), leader.log)
    assert recent.settled(3, "w1") is not None
    assert recent.digest_of(2) == commits[1].record.parameters_digest
    assert recent.digest_of(1) is None
