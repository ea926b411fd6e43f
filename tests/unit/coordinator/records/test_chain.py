"""What makes one commit record follow another, and what is said where it does not."""

from dataclasses import replace
from typing import Any

import pytest

from pliska.coordinator.records.chain import break_in_chain
from pliska.coordinator.records.commit import GENESIS, Commit
from pliska.coordinator.records.data_leases import DataCursor


def test_a_record_may_count_no_batch_twice_and_must_say_what_is_done(
    commits: list[Commit],
) -> None:
    first, second = commits[0].record, commits[1].record
    (one,) = second.contributions
    twice = replace(second, contributions=(one, replace(one, worker="w2")))
    again = replace(second, contributions=(replace(one, lease=0),))
    far = replace(second, contributions=(replace(one, lease=2**63),))
    assert break_in_chain(commits[0], twice) == ("version 2: the batch of lease 1 is counted twice")
    assert break_in_chain(commits[0], again) == ("version 2: the batch of lease 0 is counted twice")
    assert "too far ahead" in str(break_in_chain(commits[0], far))
    for previous, record in ((None, first), (commits[0], second)):
        wrong = replace(record, cursor=DataCursor(record.version + 1))
        assert break_in_chain(previous, wrong) == (
            f"version {record.version} has another data cursor than follows from its contributions"
        )


def test_records_in_order_form_a_chain(commits: list[Commit]) -> None:
    assert break_in_chain(None, commits[0].record) is None
    assert break_in_chain(commits[0], commits[1].record) is None
    assert break_in_chain(commits[1], commits[2].record) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"previous": bytes(32)}, "version 2 names another record before it than version 1"),
        ({"version": 3}, "version 3 of round 2 follows version 1 of round 1"),
        ({"round": 1}, "version 2 of round 1 follows version 1 of round 1"),
        ({"epoch": 0}, "version 2 is of epoch 0, after epoch 1"),
        ({"base_digest": bytes(32)}, "version 2 starts from other parameters than version 1"),
    ],
)
def test_a_record_that_does_not_follow_says_why(
    commits: list[Commit], change: dict[str, Any], reason: str
) -> None:
    assert break_in_chain(commits[0], replace(commits[1].record, **change)) == reason


def test_a_round_may_be_skipped_and_a_new_leader_may_follow(commits: list[Commit]) -> None:
    assert break_in_chain(commits[0], replace(commits[1].record, round=5, epoch=9)) is None


def test_only_version_one_begins_a_chain(commits: list[Commit]) -> None:
    assert break_in_chain(None, commits[1].record) == "version 2 is not the first of its chain"
    first = replace(commits[0].record, previous=bytes(31) + b"\1")
    assert break_in_chain(None, first) == "version 1 is not the first of its chain"
    assert commits[0].record.previous == GENESIS
