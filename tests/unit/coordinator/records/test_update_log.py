from pathlib import Path
from typing import Any

import pytest
import torch

from pliska.coordinator.errors import DamagedStateError, MissingObjectError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.storage.storage import LocalStorage


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


def test_an_entry_that_shrinks_keeps_its_head(leader: Any, log: UpdateLog) -> None:
    commit, other = leader.run_round(), leader.run_round()
    head = log.head(1, commit.digest)
    assert head.commit == commit

    log.shrink(1, commit.digest)
    assert log.head(1, commit.digest) == head
    assert not log.has(1, commit.digest)
    with pytest.raises(MissingObjectError):
        log.read(1, commit.digest)
    assert log.has(2, other.digest)
    log.shrink(2, other.digest)
    assert [log.head(2, other.digest).commit, log.entries()] == [other, []]


def test_a_kill_at_any_step_of_shrinking_leaves_the_head_readable(
    crash_at_every_step: Any, leader: Any, tmp_path: Path
) -> None:
    commit = leader.run_round()
    entry = (tmp_path / "storage" / leader.log.name(1, commit.digest)).read_bytes()
    (tmp_path / "entry").write_bytes(entry)
    runs = crash_at_every_step(
        "from pliska.coordinator.storage.storage import LocalStorage\n"
        "from pliska.coordinator.records.update_log import UpdateLog\n"
        f"entry = Path({str(tmp_path / 'entry')!r}).read_bytes()\n"
        f"digest = bytes.fromhex({commit.digest.hex()!r})\n"
        "def prepare(directory):\n"
        f"    LocalStorage(directory).write({leader.log.name(1, commit.digest)!r}, [entry])\n"
        "def act(directory):\n"
        "    UpdateLog(LocalStorage(directory), 'tiny').shrink(1, digest)\n"
    )
    logs = [UpdateLog(LocalStorage(run), "tiny") for run in runs]
    assert all(log.head(1, commit.digest).commit == commit for log in logs)
    assert logs[0].has(1, commit.digest)
    assert not logs[-1].has(1, commit.digest)
    for log in logs:  # what was left half done is done again
        if log.has(1, commit.digest):
            log.shrink(1, commit.digest)
        assert log.head(1, commit.digest).commit == commit
        assert log.entries() == []


def test_entries_are_listed_with_the_marks_of_their_records(leader: Any, log: UpdateLog) -> None:
    commits = [leader.run_round(), leader.run_round("other"), leader.run_round()]
    leader.storage.write("jobs/tiny/log/notes.txt", [b"not an entry"])
    listed = log.entries()
    assert [each.version for each in listed] == [1, 2, 3]
    assert all(
        each.holds(commit.record.version, commit.digest)
        for each, commit in zip(listed, commits, strict=True)
    )
    assert not listed[0].holds(2, commits[0].digest)
    log.discard(listed[1])
    assert [each.version for each in log.entries()] == [1, 3]


def test_a_part_of_an_aggregate_is_read(leader: Any, log: UpdateLog) -> None:
    commit = leader.run_round()
    whole = log.read(1, commit.digest).aggregate.numpy().tobytes()
    assert log.aggregate_range(1, commit.digest, 8, 20) == whole[8:28]
    assert log.aggregate_range(1, commit.digest, 0, len(whole)) == whole
