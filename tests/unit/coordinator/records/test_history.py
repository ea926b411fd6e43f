"""The committed rounds are read back along a chain without a gap, or not at all."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pliska.coordinator.client import JobDirectory
from pliska.coordinator.errors import CoordinatorError, DamagedStateError, ForkedChainError
from pliska.coordinator.records.commit import GENESIS, Commit, CommitRecord
from pliska.coordinator.records.data_leases import DataCursor
from pliska.coordinator.records.history import committed_history, logged_chain
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.training_state import vector_digest
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import Role, key_id, new_private_key, public_bytes
from pliska.locks import connect

JOB = "tiny"
AGGREGATE = torch.ones(4)
PRIVATE_KEY = new_private_key()
PUBLIC_KEY = public_bytes(PRIVATE_KEY)
SIGNER = Signer(PRIVATE_KEY, key_id(PUBLIC_KEY))


@pytest.fixture
def directory() -> Iterator[JobDirectory]:
    with closing(connect("memory:")) as backend:
        yield JobDirectory(backend, JOB)


@pytest.fixture
def storage_path(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def storage(storage_path: Path) -> LocalStorage:
    return LocalStorage(storage_path)


def commit_after(previous: Commit | None, base_digest: bytes = bytes(32)) -> Commit:
    version = 1 if previous is None else previous.record.version + 1
    record = CommitRecord(
        job=JOB,
        epoch=1,
        round=version,
        version=version,
        mode="synchronous",
        mode_epoch=0,
        base_digest=base_digest,
        parameters_digest=bytes(32),
        state_digest=bytes(32),
        rule="mean",
        rule_parameters=(),
        contributions=(),
        cursor=DataCursor(),
        learning_rate=0.1,
        seed=0,
        aggregate_digest=vector_digest(AGGREGATE),
        previous=GENESIS if previous is None else previous.digest,
        issued_at=0.0,
    )
    return Commit.sign(record, SIGNER)


def tip_of(commit: Commit) -> bytes:
    return SIGNER.sign(Tip.of(commit)).to_bytes()


def commit_rounds(directory: JobDirectory, storage: LocalStorage, count: int) -> list[Commit]:
    """Commit as a coordinator does: each entry on disk, the tip in the store."""
    commits: list[Commit] = []
    for _ in range(count):
        commits.append(commit_after(commits[-1] if commits else None))
        UpdateLog(storage, JOB).write(commits[-1], AGGREGATE)
    directory.backend.create(directory.commit_key, tip_of(commits[-1]))
    return commits


def test_job_without_a_commit_has_no_rounds(directory: JobDirectory, storage: LocalStorage) -> None:
    assert committed_history(directory, str(storage_path)) == ()


def test_rounds_come_first_to_last_with_the_digests_of_their_records(
    directory: JobDirectory, storage: LocalStorage, storage_path: Path
) -> None:
    directory.keyring.enroll("coordinator", Role.COORDINATOR, PUBLIC_KEY)
    commits = commit_rounds(directory, storage, 5)
    history = committed_history(directory, str(storage_path))
    assert [commit.record.round for commit in history] == [1, 2, 3, 4, 5]
    assert [commit.digest for commit in history] == [commit.digest for commit in commits]


@pytest.mark.parametrize("version", [1, 3, 5])
def test_missing_entry_is_an_error_and_not_a_gap(
    directory: JobDirectory, storage: LocalStorage, storage_path: Path, version: int
) -> None:
    directory.keyring.enroll("coordinator", Role.COORDINATOR, PUBLIC_KEY)
    commits = commit_rounds(directory, storage, 5)
    storage.delete(UpdateLog(storage, JOB).name(version, commits[version - 1].digest))
    with pytest.raises(CoordinatorError):
        committed_history(directory, str(storage_path))


@pytest.mark.parametrize("role", [None, Role.WORKER])
def test_record_that_no_coordinator_signed_is_refused(
    directory: JobDirectory, storage: LocalStorage, storage_path: Path, role: Role | None
) -> None:
    if role is not None:
        directory.keyring.enroll("w1", role, PUBLIC_KEY)
    commit_rounds(directory, storage, 2)
    with pytest.raises(DamagedStateError):
        committed_history(directory, str(storage_path))


def test_records_that_are_not_one_chain_are_refused(
    directory: JobDirectory, storage: LocalStorage, storage_path: Path
) -> None:
    directory.keyring.enroll("coordinator", Role.COORDINATOR, PUBLIC_KEY)
    first = commit_after(None)
    second = commit_after(first, base_digest=bytes([1]) * 32)
    for commit in (first, second):
        UpdateLog(storage, JOB).write(commit, AGGREGATE)
    directory.backend.create(directory.commit_key, tip_of(second))
    with pytest.raises(ForkedChainError, match="other parameters"):
        committed_history(directory, str(storage_path))


def logged(storage: LocalStorage, *commits: Commit) -> UpdateLog:
    log = UpdateLog(storage, JOB)
    for commit in commits:
        log.write(commit, AGGREGATE)
    return log


def test_chain_is_found_among_the_files_alone(storage: LocalStorage) -> None:
    first = commit_after(None)
    second = commit_after(first)
    lost = Commit.sign(replace(second.record, epoch=0), SIGNER)
    log = logged(storage, first, second, lost)
    log.shrink(1, first.digest)
    chain = logged_chain(log, None)
    assert [each.digest for each in chain.commits] == [first.digest, second.digest]
    assert [each.digest for each in chain.others] == [lost.digest]
    assert (chain.missing, chain.damaged) == (None, {})


def test_of_two_newest_entries_the_later_leaders_counts_unless_the_store_says_otherwise(
    storage: LocalStorage,
) -> None:
    first = commit_after(None)
    second = commit_after(first)
    later = Commit.sign(replace(second.record, epoch=9), SIGNER)
    log = logged(storage, first, second, later)
    assert logged_chain(log, None).commits[-1].digest == later.digest
    assert logged_chain(log, second.digest).commits[-1].digest == second.digest
    assert logged_chain(log, GENESIS).commits == ()


def test_hole_in_the_files_is_named_and_what_follows_is_kept(
    storage: LocalStorage, storage_path: Path
) -> None:
    commits: list[Commit] = []
    for _ in range(4):
        commits.append(commit_after(commits[-1] if commits else None))
    log = logged(storage, *commits)
    storage.delete(log.name(2, commits[1].digest))
    chain = logged_chain(log, None)
    assert [each.record.version for each in chain.commits] == [3, 4]
    assert chain.missing is not None
    assert "before version 3" in chain.missing
    (storage_path / log.name(3, commits[2].digest)).write_bytes(b"\0\0")
    chain = logged_chain(log, None)
    assert list(chain.damaged) == [log.name(3, commits[2].digest)]
    assert logged_chain(log, b"\1" * 32).missing is not None
