"""What a standby believes of what it is sent, and when it copies a whole state."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.records.commit import Commit
from pliska.coordinator.replication.following import (
    COPY_AFTER,
    Lead,
    place_of,
    refuse_entry,
    should_copy,
)
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire import ReplyCode

LEAD = Lead(epoch=1, key_id="ed25519:leader")


@pytest.fixture
def commits(lead: Any, tiny_job: Any, tmp_path: Path) -> list[Commit]:
    leader = lead(tiny_job(), LocalStorage(tmp_path / "storage"))
    return [leader.run_round() for _ in range(3)]


def held(*commits: Commit) -> dict[bytes, Commit]:
    return {commit.digest: commit for commit in commits}


def test_the_first_entry_and_each_that_follows_is_taken(commits: list[Commit]) -> None:
    first, second, third = commits
    assert refuse_entry(first, LEAD, {}) is None
    assert refuse_entry(second, LEAD, held(first)) is None
    assert refuse_entry(third, LEAD, held(first, second)) is None
    assert place_of(third).version == 3


def test_an_entry_of_an_earlier_leader_is_refused(commits: list[Commit]) -> None:
    for lead in (replace(LEAD, epoch=2), None):
        refusal = refuse_entry(commits[0], lead, {})
        assert refusal is not None
        assert refusal.code is ReplyCode.STALE_EPOCH
        assert "epoch 1" in refusal.reason


def test_an_entry_that_the_leader_did_not_sign_is_refused(commits: list[Commit]) -> None:
    refusal = refuse_entry(commits[0], replace(LEAD, key_id="ed25519:other"), {})
    assert refusal is not None
    assert refusal.code is ReplyCode.BAD_SIG


def test_a_standby_that_lags_says_so(commits: list[Commit]) -> None:
    refusal = refuse_entry(commits[2], LEAD, held(commits[0]))
    assert refusal is not None
    assert refusal.code is ReplyCode.BUSY
    assert refusal.reason == "lacks what version 3 follows"


def test_a_record_that_breaks_the_chain_is_refused(
    commits: list[Commit], lead: Any, tiny_job: Any, tmp_path: Path
) -> None:
    leader = lead(tiny_job(), LocalStorage(tmp_path / "other"))
    first = leader.run_round()
    second = leader.rewrite(leader.run_round(), version=7)
    refusal = refuse_entry(second, LEAD, held(first))
    assert refusal is not None
    assert refusal.code is ReplyCode.WRONG_BASE
    assert "version 7" in refusal.reason


def test_a_whole_state_is_copied_when_more_than_a_few_entries_are_missing() -> None:
    assert not should_copy(COPY_AFTER, starts=[], logged=[])
    assert should_copy(COPY_AFTER + 1, starts=[], logged=[])
    assert not should_copy(COPY_AFTER + 1, starts=[], logged=[1])
    assert not should_copy(COPY_AFTER + 1, starts=[1, 99], logged=[])
    assert should_copy(20, starts=[10], logged=[11, 12, 12, 20, 21])
    assert not should_copy(20, starts=[10], logged=range(15, 30))
