"""Every storage keeps the same promises: a directory, a bucket over HTTP, and copies of both."""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from pliska.coordinator.errors import (
    MissingObjectError,
    ObjectTooLargeError,
    StorageError,
    StorageUsageError,
)
from pliska.coordinator.storage.address import open_storage
from pliska.coordinator.storage.storage import Storage
from services.s3 import S3Server

LARGE = 12 * 2**20
"""More than one part of an upload."""


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    server = S3Server.start()
    server.make_bucket("pliska")
    yield server
    server.stop()


@pytest.fixture(params=["directory", "s3", "both"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    directory = f"{tmp_path}/objects"
    if request.param == "directory":
        return open_storage(directory)
    server: S3Server = request.getfixturevalue("s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"s3://pliska/{tmp_path.name}"
    return open_storage(bucket if request.param == "s3" else f"{directory},{bucket}")


def test_what_is_written_is_read_whole_and_in_parts(storage: Storage) -> None:
    storage.write("jobs/digits/log/0001.entry", [b"head", memoryview(b"body"), b""])
    assert storage.read("jobs/digits/log/0001.entry", 8) == b"headbody"
    assert storage.read_range("jobs/digits/log/0001.entry", 3, 3) == b"dbo"
    assert storage.size("jobs/digits/log/0001.entry") == 8


def test_a_write_takes_the_place_of_the_old_object(storage: Storage) -> None:
    storage.write("a", [b"old and long"])
    storage.write("a", [b"new"])
    assert storage.read("a", 100) == b"new"


def test_an_empty_object_is_an_object(storage: Storage) -> None:
    storage.write("empty", [])
    assert storage.size("empty") == 0
    assert storage.read("empty", 0) == b""


def test_a_large_object_comes_back_byte_for_byte(storage: Storage) -> None:
    content = np.arange(LARGE // 4, dtype="<u4").data
    storage.write("large", [content[: LARGE // 8], content[LARGE // 8 :]])
    assert storage.read("large", LARGE) == bytes(content)


def test_what_is_missing_is_missing(storage: Storage) -> None:
    assert storage.size("a") is None
    assert not storage.delete("a")
    with pytest.raises(MissingObjectError):
        storage.read("a", 1)
    with pytest.raises(MissingObjectError):
        storage.read_range("a", 0, 1)


def test_more_than_the_cap_or_beyond_the_end_is_not_read(storage: Storage) -> None:
    storage.write("a", [b"12345"])
    with pytest.raises(ObjectTooLargeError):
        storage.read("a", 4)
    with pytest.raises(StorageError):
        storage.read_range("a", 3, 3)


def test_names_are_listed_by_what_they_begin_with(storage: Storage) -> None:
    for name in ("b/1", "a/2", "a/1", "ab"):
        storage.write(name, [b"x"])
    assert storage.names("a") == ["a/1", "a/2", "ab"]
    assert storage.names("a/") == ["a/1", "a/2"]
    assert storage.names("") == ["a/1", "a/2", "ab", "b/1"]
    assert storage.names("c/") == []


def test_what_was_deleted_is_gone(storage: Storage) -> None:
    storage.write("a/b", [b"x"])
    assert storage.delete("a/b")
    assert storage.size("a/b") is None
    assert storage.names("") == []


def test_what_was_moved_is_under_its_new_name_alone(storage: Storage) -> None:
    storage.write("a/b", [b"x"])
    assert storage.move("a/b", "c/d/e")
    assert storage.names("") == ["c/d/e"]
    assert storage.read("c/d/e", 1) == b"x"
    assert not storage.move("a/b", "f")
    assert storage.names("") == ["c/d/e"]


def test_nothing_is_moved_to_where_something_is(storage: Storage) -> None:
    storage.write("a", [b"old"])
    storage.write("b", [b"new"])
    assert not storage.move("a", "b")
    assert (storage.read("a", 3), storage.read("b", 3)) == (b"old", b"new")


def test_a_write_that_breaks_off_leaves_what_was_there(storage: Storage) -> None:
    storage.write("a", [b"old"])

    def broken() -> Iterator[bytes]:
        yield b"x" * LARGE
        raise_changed()

    def raise_changed() -> NoReturn:
        raise ValueError("the file changed")

    with pytest.raises(ValueError, match="changed"):
        storage.write("a", broken())
    assert storage.read("a", 100) == b"old"
    with pytest.raises(ValueError, match="changed"):
        storage.write("new", broken())
    assert storage.size("new") is None


@pytest.mark.parametrize("name", ["", "../a", "/a", "a//b", "a/../b", ".a", "a\\b", "a%2eb", "a\0"])
def test_what_is_no_name_is_refused(storage: Storage, name: str) -> None:
    with pytest.raises(StorageUsageError):
        storage.write(name, [b"x"])
    with pytest.raises(StorageUsageError):
        storage.read(name, 1)


def test_a_copy_that_lacks_an_object_is_read_around_and_filled_by_the_next_write(
    tmp_path: Path,
) -> None:
    first, second = (open_storage(f"{tmp_path}/{n}") for n in "12")
    both = open_storage(f"{tmp_path}/1,{tmp_path}/2")
    both.write("a", [b"x"])
    first.delete("a")
    assert both.read("a", 1) == b"x"
    assert both.size("a") is None
    both.write("a", [b"x"])
    assert (first.read("a", 1), second.read("a", 1)) == (b"x", b"x")


def test_a_bucket_that_is_not_there_is_an_error_that_names_the_object(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match="a/b"):
        open_storage("s3://nowhere-at-all/x").write("a/b", [b"x"])


@pytest.mark.parametrize("address", ["s3://", "s3:///x", "s3://b/../c", "s3://UPPER", "gs://b"])
def test_addresses_of_no_bucket_are_refused(address: str) -> None:
    with pytest.raises(StorageUsageError):
        open_storage(address)
