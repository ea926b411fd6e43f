from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.audit.audit import RECORDS, verify_job
from pliska.coordinator.errors import ForkedChainError
from pliska.coordinator.records.audit_keys import KeyBook, KnownKey
from pliska.coordinator.records.chain import break_in_chain, break_in_restoring
from pliska.coordinator.records.commit import Commit, CommitRecord
from pliska.coordinator.records.pruner import Pruner
from pliska.coordinator.records.recent_rounds import read_recent_rounds
from pliska.coordinator.records.retention import RetentionOptions, horizon_of
from pliska.coordinator.records.rollback import Undone
from pliska.coordinator.replication.following import place_of
from pliska.coordinator.replication.recovery import Warm, recover
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.job import Job
from pliska.discovery import Role

Change = Callable[[CommitRecord], CommitRecord]


@pytest.fixture
def leader(lead: Any, tiny_job: Any, tmp_path: Path) -> Any:
    return lead(tiny_job(), LocalStorage(tmp_path / "storage"))


@pytest.fixture
def job(leader: Any) -> Job:
    return leader.job  # type: ignore[no-any-return]


def rolled_back(leader: Any) -> tuple[list[Commit], Commit]:
    """Run six rounds and go back to the third; return the rounds and the rollback."""
    commits = [leader.run_round() for _ in range(6)]
    return commits, leader.roll_back(commits[2])


def test_a_rollback_has_the_state_of_its_target_and_follows_the_last_round(leader: Any) -> None:
    commits, back = rolled_back(leader)
    assert back.record.version == 7
    assert back.record.undone == (Undone(3, 7),)
    assert back.record.training_epoch == 1
    assert back.record.cursor == commits[2].record.cursor
    assert back.record.state_digest == commits[2].record.state_digest
    assert break_in_chain(commits[5], back.record) is None
    assert break_in_restoring(commits[2], back.record) is None
    following = leader.run_round()
    assert break_in_chain(back, following.record) is None
    assert following.record.undone == back.record.undone


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: replace(r, undone=()), "does not note its rollback"),
        (lambda r: replace(r, undone=(Undone(2, 7),)), "does not note its rollback"),
        (lambda r: replace(r, undone=(Undone(3, 9),)), "does not note its rollback"),
        (lambda r: replace(r, base_digest=bytes(32)), "starts from other parameters"),
        (lambda r: replace(r, epoch=0), "is of epoch 0, after epoch 1"),
    ],
)
def test_a_rollback_that_does_not_follow_is_named(leader: Any, change: Change, reason: str) -> None:
    commits, back = rolled_back(leader)
    assert reason in str(break_in_chain(commits[5], change(back.record)))


def test_a_rollback_counts_no_gradients_and_goes_to_nothing_undone(leader: Any) -> None:
    commits, back = rolled_back(leader)
    counting = replace(back.record, contributions=commits[0].record.contributions)
    assert "counts gradients" in str(break_in_chain(commits[5], counting))
    again = leader.run_round()
    to_undone = leader.roll_back(commits[1]).record
    assert to_undone.rollback is not None
    wrong = replace(to_undone, rollback=replace(to_undone.rollback, target=5))
    assert "goes back to version 5, which is undone" in str(break_in_chain(again, wrong))


def test_a_record_after_a_rollback_cannot_leave_it_out(leader: Any) -> None:
    _, back = rolled_back(leader)
    following = replace(leader.run_round().record, undone=())
    assert "names other rollbacks" in str(break_in_chain(back, following))


@pytest.mark.parametrize("field", ["parameters_digest", "state_digest"])
def test_another_state_than_the_targets_is_named(leader: Any, field: str) -> None:
    commits, back = rolled_back(leader)
    wrong = replace(back.record, **{field: bytes(32)})
    assert "does not have the state of version 3" in str(break_in_restoring(commits[2], wrong))
    assert "is no rollback to version 2" in str(break_in_restoring(commits[1], back.record))


@pytest.mark.parametrize("checkpoint_at", [None, 2, 3, 5, 7, 8])
def test_what_follows_a_rollback_is_recovered_from_any_start(
    leader: Any, job: Job, checkpoint_at: int | None
) -> None:
    commits = []
    for version in range(1, 7):
        commits.append(leader.run_round())
        if version == checkpoint_at:
            leader.checkpoint()
    leader.roll_back(commits[2])
    if checkpoint_at == 7:
        leader.checkpoint()
    for version in range(8, 11):
        leader.run_round()
        if version == checkpoint_at:
            leader.checkpoint()
    recovered = recover(job, leader.head, leader.storage)
    assert recovered.model.state_digest() == leader.head.record.state_digest
    # What was undone is of no use as a start.
    assert recovered.start == {None: 0, 5: 0}.get(checkpoint_at, checkpoint_at)


def test_a_standby_that_is_at_an_undone_version_follows_over_the_rollback(
    leader: Any, job: Job
) -> None:
    commits, back = rolled_back(leader)
    warm = Warm(recover(job, commits[5], leader.storage).model, place_of(commits[5]))
    followed = recover(job, back, leader.storage, warm=warm)
    assert followed.model.state_digest() == back.record.state_digest
    warm = Warm(followed.model, place_of(back))
    following = leader.run_round()
    followed = recover(job, following, leader.storage, warm=warm)
    assert followed.start == 7
    assert followed.model.state_digest() == following.record.state_digest


def test_a_forged_rollback_is_not_recovered(leader: Any, job: Job) -> None:
    commits, back = rolled_back(leader)
    forged = leader.rewrite(back, state_digest=commits[3].record.state_digest)
    with pytest.raises(ForkedChainError, match="does not have the state of version 3"):
        recover(job, forged, leader.storage)


def test_gradients_on_what_was_undone_are_of_no_known_version(leader: Any) -> None:
    commits, back = rolled_back(leader)
    head = leader.run_round()
    digest = head.record.parameters_digest
    read = read_recent_rounds(head, digest, leader.log)
    live = read_recent_rounds(commits[5], commits[5].record.parameters_digest, leader.log)
    live.add(back.record)
    live.add(head.record)
    for recent in (read, live):
        assert recent.restored == 7
        assert [v for v in range(12) if recent.digest_of(v) is not None] == [7, 8]
        assert recent.settled(3, "w1") is None
        assert recent.settled(8, "w1") is not None


def test_what_leads_to_a_target_stays_while_a_rollback_rests_on_it(leader: Any, job: Job) -> None:
    options = RetentionOptions(keep=1, keep_rounds=0)
    pruner = Pruner(leader.log, leader.checkpoints, options)
    commits = []
    for _ in range(6):
        commits.append(leader.run_round())
        if len(commits) in (2, 5):
            leader.checkpoint()
    leader.roll_back(commits[2])
    leader.run_round()
    # A checkpoint before the rollback leads nowhere: its target's has to stay.
    horizon = horizon_of(8, pruner.versions(), [6], options, leader.head.record.undone)
    assert horizon == 2
    pruner.prune(leader.head, horizon)
    assert recover(job, leader.head, leader.storage).start == 2
    leader.checkpoint()
    assert horizon_of(8, pruner.versions(), [8], options, leader.head.record.undone) == 8


@pytest.mark.parametrize("is_forged", [False, True])
def test_an_audit_holds_a_rollback_against_its_target(
    leader: Any, job: Job, leader_key: Callable[[str], bytes | None], is_forged: bool
) -> None:
    commits, back = rolled_back(leader)
    if is_forged:
        forged = {
            "state_digest": commits[4].record.state_digest,
            "parameters_digest": commits[4].record.parameters_digest,
        }
        back = leader.rewrite(back, **forged)
    key_id = back.signed.key_id
    key = KnownKey(key_id, leader_key(key_id) or b"", Role.COORDINATOR, "c1")
    report = verify_job(leader.storage, job.name, KeyBook([key]), back)
    problems = report.checks[RECORDS].problems
    assert [("does not have the state of version 3" in each) for each in problems] == (
        [True] if is_forged else []
    )
