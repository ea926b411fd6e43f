from pathlib import Path
from typing import Any

import pytest
import torch

from pliska.coordinator.commit import Commit
from pliska.coordinator.errors import DamagedStateError, MissingObjectError
from pliska.coordinator.storage import LocalStorage
from pliska.coordinator.update_log import UpdateLog


@pytest.fixture
def leader(lead: Any, tiny_job: Any, tmp_path: Path) -> Any:
    return lead(tiny_job(), LocalStorage(tmp_path / "storage"))


@pytest.fixture
def log(leader: Any) -> UpdateLog:
    return UpdateLog(leader.storage, "tiny")


def path_of(leader: Any, log: UpdateLog, commit: Commit) -> Path:
    name = log.name(commit.record.version, commit.digest)
    (found,) = Path(leader.storage._root).glob(name)
    return found


def test_an_entry_holds_the_record_and_the_aggregate(
    leader: Any, log: UpdateLog, aggregate_at: Any
) -> None:
    leader.run_round()
    commit = leader.run_round()
    entry = log.read(2, commit.digest)

    assert entry.commit == commit
    assert torch.equal(entry.aggregate, aggregate_at(2, leader.model.dimension))


def test_the_name_tells_version_and_record(leader: Any, log: UpdateLog) -> None:
    commit = leader.run_round()

    assert leader.storage.names("jobs/tiny/log/") == [
        f"jobs/tiny/log/000000000001-{commit.digest.hex()[:16]}.entry"
    ]


def test_entries_of_two_leaders_for_one_version_stand_side_by_side(
    leader: Any, log: UpdateLog, lead: Any, tiny_job: Any
) -> None:
    mine = leader.run_round()
    theirs = lead(tiny_job(), leader.storage, epoch=2).run_round()

    assert mine.record.aggregate_digest == theirs.record.aggregate_digest
    assert log.read(1, mine.digest).commit.record.epoch == 1
    assert log.read(1, theirs.digest).commit.record.epoch == 2


def test_a_missing_entry_is_named(log: UpdateLog) -> None:
    with pytest.raises(MissingObjectError, match="000000000004-"):
        log.read(4, bytes(32))


def test_a_flipped_bit_or_a_cut_anywhere_is_refused(leader: Any, log: UpdateLog) -> None:
    commit = leader.run_round()
    path = path_of(leader, log, commit)
    content = path.read_bytes()
    # The signature is the one part that the digest chain does not cover, and need not.
    signature = content.index(commit.signed.signature)
    covered = set(range(len(content))) - set(range(signature - 200, signature + 64))
    for position in sorted(covered)[::5]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.raises(DamagedStateError, match="log/000000000001-"):
            log.read(1, commit.digest)
    for length in range(0, len(content), 11):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedStateError, match="log/000000000001-"):
            log.read(1, commit.digest)
    path.write_bytes(content + bytes(4))
    with pytest.raises(DamagedStateError, match="aggregate is not the one"):
        log.read(1, commit.digest)


def test_another_record_under_the_name_is_refused_with_its_epoch(
    leader: Any, log: UpdateLog, lead: Any, tiny_job: Any
) -> None:
    commit = leader.run_round()
    stale = lead(tiny_job(), leader.storage, epoch=7).run_round()
    path_of(leader, log, commit).write_bytes(path_of(leader, log, stale).read_bytes())

    with pytest.raises(DamagedStateError, match=r"it holds another commit record .*epoch 7"):
        log.read(1, commit.digest)
