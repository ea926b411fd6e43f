"""A file goes only while the sweep stands, and what a crash leaves of that is put in order."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pliska.coordinator.registry import Reference, RegistryConflictError, Retention
from pliska.coordinator.registry.removal import KEPT_FOR, MovedFile, moved_file, remove
from pliska.coordinator.registry.sweeps import ANNOUNCED_FOR, Announcement, Sweeps
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import Backend, StoreUnavailableError

NOW = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)


@pytest.fixture
def sweeps(backend: Backend) -> Sweeps:
    return Sweeps(backend, "default", lambda: NOW)


@pytest.fixture
def sweep(sweeps: Sweeps) -> Announcement:
    return sweeps.begin("ann")


def ended_by_another(backend: Backend) -> None:
    Sweeps(backend, "default", lambda: NOW + ANNOUNCED_FOR).rest()


def test_a_file_goes_while_the_sweep_stands(storage: LocalStorage, sweep: Announcement) -> None:
    storage.write("default/tensors/ab/abc", (b"x",))
    assert remove(sweep, storage, "default/tensors/ab/abc")
    assert storage.names("") == []
    assert not remove(sweep, storage, "default/tensors/ab/abc")


def test_a_file_is_put_back_where_the_sweep_was_ended(
    storage: LocalStorage, sweep: Announcement, backend: Backend
) -> None:
    storage.write("default/tensors/ab/abc", (b"x",))
    ended_by_another(backend)
    with pytest.raises(RegistryConflictError, match="ended this sweep"):
        remove(sweep, storage, "default/tensors/ab/abc")
    assert storage.names("") == ["default/tensors/ab/abc"]


def test_what_was_stored_there_meanwhile_is_not_replaced(
    storage: LocalStorage, sweep: Announcement, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("default/tensors/ab/abc", (b"damaged",))
    check = Announcement.check

    def repaired_first(self: Announcement) -> None:
        ended_by_another(backend)
        storage.write("default/tensors/ab/abc", (b"sound",))
        check(self)

    monkeypatch.setattr(Announcement, "check", repaired_first)
    with pytest.raises(RegistryConflictError):
        remove(sweep, storage, "default/tensors/ab/abc")
    assert storage.names("") == ["default/tensors/ab/abc"]
    assert storage.read("default/tensors/ab/abc", 9) == b"sound"


def test_a_file_is_put_back_where_the_store_does_not_answer(
    storage: LocalStorage, sweep: Announcement, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("default/tensors/ab/abc", (b"x",))

    def silent(_sweeps: Sweeps, _found: object) -> bool:
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(Sweeps, "is_stored", silent)
    with pytest.raises(StoreUnavailableError):
        remove(sweep, storage, "default/tensors/ab/abc")
    assert storage.names("") == ["default/tensors/ab/abc"]


def test_names_of_moved_files_are_read_and_others_are_not() -> None:
    name = "default/removed/20310504T030201Z-17/tensors/ab/abc"
    assert moved_file(name) == MovedFile(name, "default/tensors/ab/abc", NOW)
    for other in (
        "default/tensors/ab/abc",
        "default/removed/17/tensors/ab",
        "default/elsewhere/20310504T030201Z-17/tensors/ab/abc",
        "removed",
    ):
        assert moved_file(other) is None


def killed_when_it_had_moved(desk: Any, storage: LocalStorage) -> str:
    """Leave a file of version 1 moved away, as a sweeper does that is killed there."""
    name = next(each for each in storage.names("default/manifests/"))
    assert storage.move(name, f"default/removed/20310504T030201Z-17/{name.partition('/')[2]}")
    return name


def test_what_is_needed_is_put_back_by_the_next_collection(
    desk: Any, storage: LocalStorage
) -> None:
    desk.register(1)
    name = killed_when_it_had_moved(desk, storage)
    desk.registry.housekeeping("bob").collect(Retention())
    assert name in storage.names("")
    desk.registry.load(Reference("digits", version=1))
    assert len(desk.registry.namespace.blobs.moved()) == 1


def test_what_was_left_moved_away_goes_after_a_week(
    desk: Any, desk_on: Any, storage: LocalStorage
) -> None:
    desk.register(1)
    killed_when_it_had_moved(desk, storage)
    for age, left in ((KEPT_FOR - timedelta(seconds=1), 1), (KEPT_FOR, 0)):
        later = desk_on(desk.backend, storage, now=lambda age=age: NOW + age)
        later.registry.housekeeping("bob").collect(Retention())
        assert len(later.registry.namespace.blobs.moved()) == left
    desk.registry.load(Reference("digits", version=1))
