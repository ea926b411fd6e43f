"""Clearing one storage: what goes, what stays, and what a crash in between leaves."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from simulation.disk import Disk, DiskStorage

from pliska.coordinator.errors import MissingObjectError, StorageError
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.records.commit import GENESIS
from pliska.coordinator.records.pruner import Pruner
from pliska.coordinator.records.retention import RetentionOptions
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.storage.storage import LocalStorage


@pytest.fixture
def leader(lead: Any, tiny_job: Any, tmp_path: Path) -> Any:
    return lead(tiny_job(), LocalStorage(tmp_path / "storage"))


@pytest.fixture
def archive(leader: Any) -> Archive:
    return Archive(leader.storage, leader.job)


def pruner(archive: Archive, keep: int = 1, keep_rounds: int = 0) -> Pruner:
    return Pruner(archive.log, archive.checkpoints, RetentionOptions(keep, keep_rounds))


def run(leader: Any, rounds: int, checkpoint_at: tuple[int, ...]) -> None:
    for _ in range(rounds):
        leader.run_round()
        if leader.model.step in checkpoint_at:
            leader.checkpoint()


def test_old_aggregates_go_and_the_chain_of_records_stays(leader: Any, archive: Archive) -> None:
    run(leader, 8, checkpoint_at=(3, 6))
    pruner(archive).prune(leader.head, horizon=6)

    assert [each.version for each in archive.log.entries()] == [7, 8]
    assert [archive.checkpoints.version_of(place) for place in archive.checkpoints.places()] == [6]
    version, digest = 8, leader.head.digest
    while digest != GENESIS:
        record = archive.log.head(version, digest).commit.record
        assert record.version == version
        version, digest = version - 1, record.previous
    assert version == 0
    assert recover(leader.job, leader.head, leader.storage).start == 6


def test_a_horizon_that_is_not_reached_spares_what_follows_it(
    leader: Any, archive: Archive
) -> None:
    run(leader, 8, checkpoint_at=(3, 6))
    pruner(archive).prune(leader.head, horizon=5)
    assert [each.version for each in archive.log.entries()] == [4, 5, 6, 7, 8]
    assert len(archive.checkpoints.places()) == 2
    pruner(archive).prune(leader.head, horizon=0)
    assert [each.version for each in archive.log.entries()] == [4, 5, 6, 7, 8]


def test_a_checkpoint_that_is_being_fetched_stays_with_what_follows_it(
    leader: Any, archive: Archive
) -> None:
    run(leader, 8, checkpoint_at=(3, 6))
    pruner(archive).prune(leader.head, horizon=6, spared=[3])
    assert [each.version for each in archive.log.entries()] == [4, 5, 6, 7, 8]
    assert len(archive.checkpoints.places()) == 2


def test_an_entry_that_was_never_committed_goes_altogether(
    leader: Any, archive: Archive, lead: Any
) -> None:
    stale = lead(leader.job, leader.storage, epoch=0)
    orphan = stale.run_round("other")
    run(leader, 4, checkpoint_at=(3,))
    assert len(archive.log.entries()) == 5
    pruner(archive).prune(leader.head, horizon=3)
    assert [each.version for each in archive.log.entries()] == [4]
    with pytest.raises(MissingObjectError):
        archive.log.head(1, orphan.digest)


def test_pruning_again_looks_only_at_what_is_new(leader: Any, archive: Archive) -> None:
    run(leader, 4, checkpoint_at=(3,))
    pruning = pruner(archive)
    pruning.prune(leader.head, horizon=3)
    run(leader, 4, checkpoint_at=(6,))
    pruning.prune(leader.head, horizon=6)
    assert [each.version for each in archive.log.entries()] == [7, 8]
    assert pruning.versions() == [6]


def test_what_nothing_in_this_storage_explains_is_left_alone(leader: Any, archive: Archive) -> None:
    run(leader, 6, checkpoint_at=(5,))
    missing = next(each for each in archive.log.entries() if each.version == 3)
    archive.log.discard(missing)
    pruner(archive).prune(leader.head, horizon=5)
    assert [each.version for each in archive.log.entries()] == [1, 2, 6]


def test_a_kill_at_any_step_leaves_what_recovery_needs(
    crash_at_every_step: Callable[[str], list[Path]], leader: Any, tmp_path: Path
) -> None:
    run(leader, 5, checkpoint_at=(2, 4))
    runs = crash_at_every_step(
        "import shutil\n"
        f"sys.path.insert(0, {str(tmp_path / 'user')!r})\n"
        "from conftest import job_with, key_lookup\n"
        "from pliska.coordinator.records.archive import Archive\n"
        "from pliska.coordinator.records.commit import Commit\n"
        "from pliska.coordinator.records.pruner import Pruner\n"
        "from pliska.coordinator.records.retention import RetentionOptions\n"
        "from pliska.coordinator.storage.storage import LocalStorage\n"
        f"head = Commit.verified({leader.head.to_bytes()!r}, 'tiny', key_lookup)\n"
        "job = job_with()\n"
        "def prepare(directory):\n"
        f"    shutil.copytree({str(tmp_path / 'storage')!r}, directory, dirs_exist_ok=True)\n"
        "def act(directory):\n"
        "    archive = Archive(LocalStorage(directory), job)\n"
        "    options = RetentionOptions(1, 0)\n"
        "    Pruner(archive.log, archive.checkpoints, options).prune(head, 4)\n"
    )
    assert len(runs) > 10
    for directory in runs:
        storage = LocalStorage(directory)
        recovered = recover(leader.job, leader.head, storage)
        assert recovered.version == 5
        pruner(Archive(storage, leader.job)).prune(leader.head, horizon=4)
        assert recover(leader.job, leader.head, storage).start == 4
        assert [each.version for each in Archive(storage, leader.job).log.entries()] == [5]


class PausingStorage(DiskStorage):
    """Stops at its n-th access, once; meanwhile something else happens to the same disk."""

    def __init__(self, disk: Disk, pause_at: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(disk)
        self._left = pause_at
        self._meanwhile = meanwhile

    @property
    def was_paused(self) -> bool:
        return self._left < 0

    def _require_access(self, _name: str) -> None:
        self._left -= 1
        if self._left == -1:
            self._meanwhile()


ACCESSES_MAX = 200


@pytest.fixture
def pauses(lead: Any, tiny_job: Any) -> Callable[[], Iterator[tuple[Any, PausingStorage]]]:
    """Leaders of four rounds, each with a hold on the storage that stops one access later.

    Meanwhile the next leader goes on for four rounds on the same files, and prunes them.
    """

    def leaders() -> Iterator[tuple[Any, PausingStorage]]:
        for pause_at in range(ACCESSES_MAX):
            disk = Disk()
            leader = lead(tiny_job(), DiskStorage(disk))
            run(leader, 4, checkpoint_at=(2,))

            def meanwhile(leader: Any = leader) -> None:
                leader.epoch += 1
                leader.checkpoint()
                for horizon in (6, 8):
                    run(leader, 2, checkpoint_at=(6, 8))
                    pruner(Archive(leader.storage, leader.job)).prune(leader.head, horizon)

            paused = PausingStorage(disk, pause_at, meanwhile)
            yield leader, paused
            if not paused.was_paused:
                return
        raise AssertionError(f"it never came to its end in {ACCESSES_MAX} accesses")

    return leaders


def expect_what_a_leader_needs(leader: Any) -> None:
    """Check that the last version can be rebuilt, and that nothing is half there."""
    archive = Archive(leader.storage, leader.job)
    for place in archive.checkpoints.places():
        archive.checkpoints.read(place)
    assert recover(leader.job, leader.head, leader.storage).start == 8
    pruner(archive).prune(leader.head, horizon=8)
    assert [folder.version for folder in archive.checkpoints.folders()] == [8]
    assert archive.log.entries() == []


def test_leader_that_is_paused_anywhere_in_pruning_takes_nothing_that_the_next_one_needs(
    pauses: Callable[[], Iterator[tuple[Any, PausingStorage]]],
) -> None:
    tried = 0
    for leader, paused in pauses():
        head = leader.head
        leader.checkpoint()
        pruner(Archive(paused, leader.job)).prune(head, horizon=2)
        if paused.was_paused:
            expect_what_a_leader_needs(leader)
            tried += 1
    assert tried > 20


def test_leader_that_is_paused_anywhere_in_writing_a_checkpoint_spoils_nothing(
    pauses: Callable[[], Iterator[tuple[Any, PausingStorage]]],
) -> None:
    tried = taken_back = 0
    for leader, paused in pauses():
        record, state = leader.head.record, deepcopy(leader.model.export_state())
        checkpoint = Checkpoint(record.version, leader.head.digest, record.state_digest)
        try:
            CheckpointStore(paused, leader.job.name).write(checkpoint, state)
        except StorageError:
            taken_back += 1
        if paused.was_paused:
            expect_what_a_leader_needs(leader)
            tried += 1
    assert tried >= 6
    assert taken_back >= 3
