"""A job with as many workers as there may be, on every store."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.records.commit import GENESIS, Commit, CommitRecord, Contribution
from pliska.coordinator.records.committer import Committer
from pliska.coordinator.records.data_leases import DataCursor
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.wire.limits import MEMBERS_MAX
from pliska.coordinator.wire.signing import Signer
from pliska.discovery import new_private_key, public_bytes
from pliska.locks import Election, Session, connect
from pliska.locks.backends.base import RECORD_BYTES_MAX

KEY = new_private_key()
SIGNER = Signer(KEY, "ed25519:leader")


@pytest.fixture
def directory(address: str) -> Iterator[JobDirectory]:
    with closing(connect(address)) as backend:
        yield JobDirectory(backend, "crowd")


def commit_of(workers: int) -> Commit:
    """Return a commit that so many workers contributed to, with long names and reasons."""
    contributions = tuple(
        Contribution(
            worker=f"worker-of-the-crowd-{number:04d}",
            incarnation=bytes(16),
            lease=number,
            payload_root=bytes(32),
            verdict="kept",
            weight=1 / workers,
            score=0.5,
            reason="its squared distance to its neighbours was in the middle of those of others",
        )
        for number in range(workers)
    )
    record = CommitRecord(
        job="crowd",
        epoch=1,
        round=1,
        version=1,
        mode="synchronous",
        mode_epoch=0,
        base_digest=bytes(32),
        parameters_digest=bytes(32),
        state_digest=bytes(32),
        rule="mean",
        rule_parameters=(),
        contributions=contributions,
        cursor=DataCursor(workers),
        learning_rate=0.1,
        seed=0,
        aggregate_digest=bytes(32),
        previous=GENESIS,
        issued_at=time.time(),
    )
    return Commit.sign(record, SIGNER)


def test_a_round_of_as_many_workers_as_there_may_be_is_committed(directory: JobDirectory) -> None:
    commit = commit_of(MEMBERS_MAX)
    assert len(commit.to_bytes()) > RECORD_BYTES_MAX
    with Session.open(directory.backend, 10.0) as session:
        leadership = Election(session, directory.election, "c1").campaign(timeout_s=10.0)
        Committer(directory, leadership, None, SIGNER).commit(commit)
    stored = directory.commit()
    assert stored is not None
    assert Tip.verified(stored.value, "crowd", {SIGNER.key_id: public_bytes(KEY)}.get) == Tip.of(
        commit
    )
