"""Records of old rounds, fetched by who joined late."""

from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.errors import MissingObjectError
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.commit import GENESIS
from pliska.coordinator.records.log_entry import LogHead
from pliska.coordinator.replication.backfill import STEP_HEADS, Backfill
from pliska.coordinator.replication.following import Place, place_of
from pliska.coordinator.storage.storage import LocalStorage


class Other:
    """Another coordinator's log, from one version on."""

    def __init__(self, archive: Archive, first: int = 1) -> None:
        self.archive = archive
        self.first = first
        self.asked: list[int] = []

    def head(self, place: Place) -> LogHead:
        self.asked.append(place.version)
        if place.version < self.first:
            raise MissingObjectError(f"version {place.version} is gone")
        return self.archive.log.head(place.version, place.digest)


@pytest.fixture
def leader(lead: Any, tiny_job: Any, tmp_path: Path) -> Any:
    return lead(tiny_job(), LocalStorage(tmp_path / "storage"))


def late(leader: Any, tmp_path: Path) -> Archive:
    """A storage that has the newest record only."""
    archive = Archive(LocalStorage(tmp_path / "late"), leader.job)
    head = leader.head
    archive.log.write_head(leader.log.head(head.record.version, head.digest))
    return archive


def test_the_chain_is_whole_at_the_end(leader: Any, tmp_path: Path) -> None:
    commits = [leader.run_round() for _ in range(STEP_HEADS + 3)]
    archive, other = late(leader, tmp_path), Other(Archive(leader.storage, leader.job))
    backfill = Backfill(archive.log, other, place_of(leader.head))  # type: ignore[arg-type]
    backfill.step()
    assert not backfill.is_done
    backfill.step()
    assert backfill.is_done
    for commit in commits:
        assert archive.log.head(commit.record.version, commit.digest).commit == commit
    assert other.asked == list(range(STEP_HEADS + 2, 0, -1))
    again = Backfill(archive.log, other, place_of(leader.head))  # type: ignore[arg-type]
    while not again.is_done:
        again.step()
    assert len(other.asked) == STEP_HEADS + 2, "what is here is not fetched again"


def test_what_nobody_has_ends_it(leader: Any, tmp_path: Path) -> None:
    for _ in range(5):
        leader.run_round()
    archive, other = late(leader, tmp_path), Other(Archive(leader.storage, leader.job), first=3)
    backfill = Backfill(archive.log, other, place_of(leader.head))  # type: ignore[arg-type]
    backfill.step()
    assert backfill.is_done
    assert other.asked == [4, 3, 2]


def test_a_job_without_rounds_lacks_nothing(leader: Any, tmp_path: Path) -> None:
    other = Other(Archive(leader.storage, leader.job))
    assert Backfill(leader.log, other, Place(0, GENESIS)).is_done  # type: ignore[arg-type]
