"""The entries that standbys may still need: from memory, from the log, or not any more."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.errors import MissingObjectError
from pliska.coordinator.records.commit import GENESIS
from pliska.coordinator.records.log_entry import LogEntry
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication import backlog as backlog_module
from pliska.coordinator.replication.backlog import RECENT_MAX, Backlog
from pliska.coordinator.replication.donor_client import DonorRefusedError
from pliska.coordinator.storage.storage import LocalStorage


class Leadership:
    """A leader's log, whose rounds are told to a backlog."""

    def __init__(self, leader: Any, storage: LocalStorage) -> None:
        self.leader = leader
        self.log = UpdateLog(storage, leader.job.name)
        self.backlog = Backlog(self.log)

    def round(self) -> LogEntry:
        commit = self.leader.run_round()
        entry = self.log.read(commit.record.version, commit.digest)
        self.backlog.add(entry)
        return entry


@pytest.fixture
def leadership(lead: Any, tiny_job: Any, tmp_path: Path) -> Leadership:
    storage = LocalStorage(tmp_path / "storage")
    return Leadership(lead(tiny_job(), storage), storage)


async def test_entry_that_is_not_there_yet_is_waited_for(leadership: Leadership) -> None:
    waiting = asyncio.create_task(leadership.backlog.after(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    entry = leadership.round()
    assert await waiting is entry


async def test_newest_entries_come_from_memory_and_older_ones_from_the_log(
    leadership: Leadership,
) -> None:
    entries = [leadership.round() for _ in range(RECENT_MAX + 1)]
    assert await leadership.backlog.after(1) is entries[1]
    oldest = await leadership.backlog.after(0)
    assert oldest is not entries[0]
    assert oldest.commit == entries[0].commit


async def test_standby_that_is_further_behind_than_is_known_is_told_so(
    leadership: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "KNOWN_MAX", RECENT_MAX + 2)
    for _ in range(RECENT_MAX + 2):
        leadership.round()
    assert (await leadership.backlog.after(0)).commit.record.version == 1
    leadership.round()
    with pytest.raises(DonorRefusedError, match="fell behind version 1"):
        await leadership.backlog.after(0)


async def test_entry_that_was_pruned_is_not_waited_for(
    leadership: Leadership, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_module, "READ_AGAIN_S", 0.001)
    for _ in range(RECENT_MAX + 1):
        leadership.round()
    (oldest,) = (tmp_path / "storage").rglob("000000000001-*.entry")
    oldest.unlink()
    with pytest.raises(MissingObjectError, match="no entry of version 1 any more"):
        async with asyncio.timeout(30):
            await leadership.backlog.after(0)


def test_version_is_on_the_chain_if_its_digest_is_the_one_that_is_known(
    leadership: Leadership,
) -> None:
    entry = leadership.round()
    assert leadership.backlog.has(0, GENESIS)
    assert leadership.backlog.has(1, entry.commit.digest)
    assert not leadership.backlog.has(1, GENESIS)
    assert not leadership.backlog.has(2, GENESIS)
