"""From an entry to a committed round: own disk, standbys, the record in the store."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.errors import StorageError
from pliska.coordinator.records.annex import NO_ANNEX
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.update_log import LogEntry, UpdateLog
from pliska.coordinator.replication.ledger import Ledger, due
from pliska.coordinator.storage.storage import LocalStorage

WAIT_S = 20.0


class Recorder:
    """Stands for standbys and store, and notes in which order they are used."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.enough = threading.Event()
        self.enough.set()
        self.is_waiting = threading.Event()

    def send(self, entry: LogEntry) -> None:
        self.events.append(f"send {entry.commit.record.version}")

    def wait(self, commit: Commit) -> None:
        self.events.append(f"wait {commit.record.version}")
        self.is_waiting.set()
        assert self.enough.wait(WAIT_S)

    def commit(self, commit: Commit) -> None:
        self.events.append(f"commit {commit.record.version}")


class Disk(LocalStorage):
    """Notes what it has written; fails when it is told to."""

    def __init__(self, directory: Path, recorder: Recorder) -> None:
        super().__init__(directory)
        self.recorder = recorder
        self.is_broken = False

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        if self.is_broken:
            raise StorageError(f"cannot write {name}: Input/output error")
        super().write(name, chunks)
        self.recorder.events.append(f"write {int(name.rpartition('/')[2][:12])}")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def entries(lead: Any, tiny_job: Any, tmp_path: Path) -> list[LogEntry]:
    leader = lead(tiny_job(), LocalStorage(tmp_path / "source"))
    commits = [leader.run_round() for _ in range(6)]
    read = [leader.log.read(commit.record.version, commit.digest) for commit in commits]
    assert all(entry.annex == NO_ANNEX for entry in read)
    return read


@pytest.fixture
def disk(tmp_path: Path, recorder: Recorder) -> Disk:
    return Disk(tmp_path / "own", recorder)


@pytest.fixture
def make(disk: Disk, recorder: Recorder) -> Callable[..., Ledger]:
    def ledger(every: int = 1, checkpoint_every: int = 100, rounds: int = 100) -> Ledger:
        log = UpdateLog(disk, "tiny")
        return Ledger(log, recorder, recorder, None, due(every, checkpoint_every, rounds))  # type: ignore[arg-type]

    return ledger


def test_a_round_is_on_both_disks_before_its_record_moves(
    make: Callable[..., Ledger], recorder: Recorder, entries: list[LogEntry]
) -> None:
    ledger = make()
    ledger.append(entries[0])
    assert recorder.events == ["send 1", "write 1", "wait 1", "commit 1"]
    assert ledger.committed == entries[0].commit
    ledger.close()


def test_nothing_is_committed_while_the_standbys_have_not_got_it(
    make: Callable[..., Ledger], recorder: Recorder, entries: list[LogEntry]
) -> None:
    ledger = make()
    recorder.enough.clear()
    appending = threading.Thread(target=ledger.append, args=(entries[0],))
    appending.start()
    assert recorder.is_waiting.wait(WAIT_S)
    assert "commit 1" not in recorder.events
    assert ledger.committed is None
    recorder.enough.set()
    appending.join(WAIT_S)
    assert ledger.committed == entries[0].commit
    ledger.close()


def test_one_record_stands_for_the_rounds_between_two_commits(
    make: Callable[..., Ledger], recorder: Recorder, entries: list[LogEntry]
) -> None:
    ledger = make(every=3)
    for entry in entries[:3]:
        ledger.append(entry)
    assert [each for each in recorder.events if each.startswith("commit")] == ["commit 3"]
    assert {"write 1", "write 2", "write 3"} < set(recorder.events[:-2])
    assert recorder.events[-2:] == ["wait 3", "commit 3"]
    ledger.append(entries[3])
    assert ledger.committed == entries[2].commit
    ledger.flush()
    assert ledger.committed == entries[3].commit
    events = list(recorder.events)
    ledger.flush()
    assert recorder.events == events, "there is nothing left to commit"
    ledger.close()


def test_a_disk_that_fails_commits_nothing(
    make: Callable[..., Ledger], recorder: Recorder, disk: Disk, entries: list[LogEntry]
) -> None:
    ledger = make(every=2)
    disk.is_broken = True
    ledger.append(entries[0])
    with pytest.raises(StorageError, match="Input/output error"):
        ledger.append(entries[1])
    assert ledger.committed is None
    assert not [each for each in recorder.events if each.startswith("commit")]
    ledger.close()


def test_rounds_with_a_checkpoint_and_the_last_one_are_always_due() -> None:
    assert list(filter(due(4, 10, 23), range(1, 24))) == [4, 8, 10, 12, 16, 20, 23]
    assert all(map(due(1, 10, 23), range(1, 24)))
