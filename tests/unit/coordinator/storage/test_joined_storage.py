"""Storages of several coordinators, read as one."""

from pathlib import Path

import pytest

from pliska.coordinator.errors import MissingObjectError, StorageUsageError
from pliska.coordinator.storage.joined_storage import JoinedStorage
from pliska.coordinator.storage.storage import LocalStorage


@pytest.fixture
def joined(tmp_path: Path) -> JoinedStorage:
    one, other = LocalStorage(tmp_path / "one"), LocalStorage(tmp_path / "other")
    for storage in (one, other):
        storage.write("log/both", [b"same"])
    one.write("payloads/first", [b"of one"])
    other.write("payloads/second", [b"of the other"])
    return JoinedStorage([one, other])


def test_what_any_of_them_has_is_there(joined: JoinedStorage) -> None:
    assert joined.names("") == ["log/both", "payloads/first", "payloads/second"]
    assert joined.read("payloads/second", 100) == b"of the other"
    assert joined.read_range("payloads/first", 3, 3) == b"one"
    assert [joined.size(name) for name in joined.names("")] == [4, 6, 12]
    assert joined.size("payloads/third") is None
    with pytest.raises(MissingObjectError):
        joined.read("payloads/third", 100)


def test_nothing_is_changed(joined: JoinedStorage) -> None:
    with pytest.raises(StorageUsageError):
        joined.write("log/more", [b"more"])
    with pytest.raises(StorageUsageError):
        joined.delete("log/both")
    assert len(joined.names("")) == 3
