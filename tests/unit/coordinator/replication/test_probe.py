"""Whether two coordinators share a storage: told by a mark that only a shared one shows."""

import shutil
from pathlib import Path

from pliska.coordinator.replication.probe import leave_mark, shares_storage
from pliska.coordinator.storage.storage import LocalStorage

SECRET, OTHER = b"s" * 32, b"o" * 32


def test_a_mark_is_found_in_the_same_storage_only(tmp_path: Path) -> None:
    here, there = LocalStorage(tmp_path / "a"), LocalStorage(tmp_path / "b")
    probe = leave_mark(here, "toy", 7, SECRET)
    assert shares_storage(LocalStorage(tmp_path / "a"), "toy", 7, probe)
    assert not shares_storage(there, "toy", 7, probe)
    assert not shares_storage(here, "other", 7, probe)


def test_a_copied_disk_is_not_the_same_storage(tmp_path: Path) -> None:
    here = LocalStorage(tmp_path / "a")
    leave_mark(here, "toy", 7, SECRET)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    probe = leave_mark(here, "toy", 8, OTHER)  # of the next leadership
    assert not shares_storage(LocalStorage(tmp_path / "b"), "toy", 8, probe)
    assert not shares_storage(LocalStorage(tmp_path / "b"), "toy", 7, probe)


def test_marks_of_earlier_leaderships_go_and_of_later_ones_stay(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    for epoch in (9, 3, 11):
        leave_mark(storage, "toy", epoch, SECRET)
    leave_mark(storage, "toy", 10, SECRET)
    assert [int(name[-20:]) for name in storage.names("jobs/toy/leaders/")] == [10, 11]


def test_something_else_in_its_place_is_no_mark(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    probe = leave_mark(storage, "toy", 7, SECRET)
    storage.write("jobs/toy/leaders/00000000000000000007", [b"x" * 1000])
    assert not shares_storage(storage, "toy", 7, probe)
