import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pliska.coordinator.errors import (
    MissingObjectError,
    ObjectTooLargeError,
    StorageError,
    StorageUsageError,
)
from pliska.coordinator.storage.address import open_storage
from pliska.coordinator.storage.local_storage import TEMPORARY_AGE_MAX_S, LocalStorage
from pliska.coordinator.storage.name import NAME_CHARACTERS_MAX, SEGMENT_CHARACTERS_MAX


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "objects")


def files_below(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_what_is_written_is_read(storage: LocalStorage) -> None:
    storage.write("jobs/digits/log/0001.entry", [b"head", memoryview(b"body"), b""])

    assert storage.read("jobs/digits/log/0001.entry", 8) == b"headbody"
    assert storage.size("jobs/digits/log/0001.entry") == 8


def test_a_write_takes_the_place_of_the_old_object(storage: LocalStorage) -> None:
    storage.write("a", [b"old and long"])
    storage.write("a", [b"new"])

    assert storage.read("a", 100) == b"new"


def test_a_view_of_any_shape_is_written_as_its_bytes(storage: LocalStorage) -> None:
    empty = np.zeros((0, 3), dtype=np.float32).data
    storage.write("a", [memoryview(bytes(range(8))).cast("i"), empty])

    assert storage.read("a", 100) == bytes(range(8))


def test_reading_more_than_the_cap_is_refused(storage: LocalStorage) -> None:
    storage.write("a", [b"12345"])

    assert storage.read("a", 5) == b"12345"
    with pytest.raises(ObjectTooLargeError, match="5 bytes, more than the 4"):
        storage.read("a", 4)


def test_what_is_missing_is_named(storage: LocalStorage) -> None:
    storage.write("a", [b"1"])

    with pytest.raises(MissingObjectError, match="b/c"):
        storage.read("b/c", 10)
    with pytest.raises(MissingObjectError):
        storage.read("a/below-a-file", 10)
    assert storage.size("b/c") is None
    assert storage.delete("b/c") is False


def test_a_folder_is_not_an_object(storage: LocalStorage) -> None:
    storage.write("jobs/a", [b"1"])

    assert storage.size("jobs") is None
    with pytest.raises(StorageError):
        storage.read("jobs", 10)


def test_a_deleted_object_is_gone(storage: LocalStorage) -> None:
    storage.write("a", [b"1"])

    assert storage.delete("a") is True
    assert storage.size("a") is None


def test_a_part_of_an_object_is_read(storage: LocalStorage) -> None:
    storage.write("a", [b"0123456789"])

    assert storage.read_range("a", 3, 4) == b"3456"
    assert storage.read_range("a", 0, 10) == b"0123456789"
    assert storage.read_range("a", 10, 0) == b""
    with pytest.raises(StorageError, match="1 of 4 bytes are missing"):
        storage.read_range("a", 7, 4)
    with pytest.raises(MissingObjectError):
        storage.read_range("b", 0, 1)


def test_a_folder_goes_with_the_last_object_in_it(storage: LocalStorage, tmp_path: Path) -> None:
    for name in ("jobs/a/log/1", "jobs/a/log/2", "jobs/b"):
        storage.write(name, [b""])
    top = tmp_path / "objects"

    storage.delete("jobs/a/log/1")
    assert (top / "jobs" / "a" / "log").is_dir()
    storage.delete("jobs/a/log/2")
    assert not (top / "jobs" / "a").exists()
    storage.delete("jobs/b")
    assert list(top.iterdir()) == []
    storage.write("jobs/a/log/3", [b""])
    assert storage.names("") == ["jobs/a/log/3"]


def test_one_may_write_where_another_removes_empty_folders(storage: LocalStorage) -> None:
    seed = int.from_bytes(os.urandom(4))
    names = [f"jobs/{number % 3}/log/{number}" for number in range(200)]
    random.Random(seed).shuffle(names)

    def come_and_go(name: str) -> None:
        storage.write(name, [name.encode()])
        assert storage.read(name, 100) == name.encode()
        assert storage.delete(name), f"{name}, seed {seed}"

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(come_and_go, names))
    assert storage.names("") == []


def test_a_kill_at_any_step_of_a_delete_leaves_the_object_or_nothing(
    crash_at_every_step: Callable[[str], list[Path]],
) -> None:
    runs = crash_at_every_step(
        "from pliska.coordinator.storage.storage import LocalStorage\n"
        "def prepare(directory):\n"
        "    LocalStorage(directory).write('jobs/a/1', [b'old'])\n"
        "    LocalStorage(directory).write('jobs/b', [b'other'])\n"
        "def act(directory):\n"
        "    LocalStorage(directory).delete('jobs/a/1')\n"
    )

    kept = [LocalStorage(run).names("") for run in runs]
    assert kept[0] == ["jobs/a/1", "jobs/b"]
    assert kept[-1] == ["jobs/b"]
    assert all(each in (kept[0], kept[-1]) for each in kept)
    for run in runs:  # what a crash left behind stands in nobody's way
        storage = LocalStorage(run)
        storage.write("jobs/a/1", [b"new"])
        assert storage.delete("jobs/a/1")
        assert not (run / "jobs" / "a").exists()


def test_names_lists_by_plain_prefix_in_order(storage: LocalStorage) -> None:
    for name in ("jobs/a/log/2", "jobs/a/log/1", "jobs/ab/log/1", "blobs/1"):
        storage.write(name, [b""])

    assert storage.names("") == ["blobs/1", "jobs/a/log/1", "jobs/a/log/2", "jobs/ab/log/1"]
    assert storage.names("jobs/a") == ["jobs/a/log/1", "jobs/a/log/2", "jobs/ab/log/1"]
    assert storage.names("jobs/a/log/") == ["jobs/a/log/1", "jobs/a/log/2"]
    assert storage.names("absent/") == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../escape",
        "a/../../escape",
        "/absolute",
        "a//b",
        "a/",
        ".hidden",
        "a/.hidden",
        "-option",
        "a\0b",
        "a\\b",
        "a%2e%2e",
        "a:b",
        "a b",
        "a\n",
        "ä",
        "a" * (SEGMENT_CHARACTERS_MAX + 1),
        "/".join(["a"] * (NAME_CHARACTERS_MAX // 2 + 1)),
    ],
)
def test_a_name_that_could_leave_the_storage_is_refused(storage: LocalStorage, name: str) -> None:
    for use in (storage.size, storage.delete, lambda name: storage.read(name, 1)):
        with pytest.raises(StorageUsageError, match="not an object name"):
            use(name)
    with pytest.raises(StorageUsageError, match="not an object name"):
        storage.write(name, [b"x"])


def test_the_longest_names_are_taken(storage: LocalStorage) -> None:
    part = "a" * SEGMENT_CHARACTERS_MAX
    longest = "/".join([part, part, part, "a" * (NAME_CHARACTERS_MAX - 3 * len(part) - 3)])
    assert len(longest) == NAME_CHARACTERS_MAX
    storage.write(longest, [b"x"])

    assert storage.names("") == [longest]


def test_symbolic_links_are_never_followed(storage: LocalStorage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (tmp_path / "objects" / "folder").symlink_to(outside)
    (tmp_path / "objects" / "file").symlink_to(outside / "secret")

    for name in ("folder/secret", "file"):
        with pytest.raises(StorageError, match="symbolic link"):
            storage.read(name, 100)
        with pytest.raises(StorageError, match="symbolic link"):
            storage.write(name, [b"x"])
        with pytest.raises(StorageError, match="symbolic link"):
            storage.delete(name)
    assert storage.names("folder") == []
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_source_that_fails_half_way_leaves_nothing(storage: LocalStorage, tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    storage.write("a", [b"old"])
    with pytest.raises(ZeroDivisionError):
        storage.write("a", chunks())

    assert storage.read("a", 10) == b"old"
    assert files_below(tmp_path) == ["a"]


def test_a_disk_that_fills_up_leaves_nothing_half_done(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from pliska.coordinator.errors import StorageFullError\n"
        "from pliska.coordinator.storage.storage import LocalStorage\n"
        "storage = LocalStorage(Path(sys.argv[1]))\n"
        "storage.write('a', [b'old'])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    storage.write('a', [b'x' * 700, b'x' * 700])\n"
        "except StorageFullError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert "cannot write a: File too large; nothing was stored, make room" in done.stdout
    assert files_below(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_sweep_removes_old_leftovers_and_nothing_else(
    storage: LocalStorage, tmp_path: Path
) -> None:
    storage.write("jobs/a", [b"kept"])
    leftover = tmp_path / "objects" / "jobs" / ".a.0123456789abcdef.tmp"
    leftover.write_bytes(b"half")
    written_at = leftover.stat().st_mtime

    assert storage.names("jobs/") == ["jobs/a"]
    assert storage.sweep(now=written_at + TEMPORARY_AGE_MAX_S) == []
    assert storage.sweep(now=written_at + TEMPORARY_AGE_MAX_S + 1) == [leftover]
    assert files_below(tmp_path) == ["a"]


def test_opening_a_storage_sweeps_it(tmp_path: Path) -> None:
    leftover = tmp_path / ".a.0123456789abcdef.tmp"
    leftover.write_bytes(b"half")
    long_ago = time.time() - 2 * TEMPORARY_AGE_MAX_S
    os.utime(leftover, (long_ago, long_ago))

    open_storage(str(tmp_path))

    assert files_below(tmp_path) == []


def test_a_path_and_a_file_address_name_the_same_storage(tmp_path: Path) -> None:
    open_storage(f"file:{tmp_path}/s").write("a", [b"1"])

    assert open_storage(f"{tmp_path}/s").read("a", 1) == b"1"
    assert open_storage(f"file://{tmp_path}/s").read("a", 1) == b"1"


@pytest.mark.parametrize("address", ["", "file:", "file://host/path", "ftp://host", "a\0b"])
def test_an_address_that_is_not_supported_says_what_to_write(address: str) -> None:
    with pytest.raises(StorageUsageError, match="write a path"):
        open_storage(address)


def test_a_storage_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StorageError, match="cannot open"):
        open_storage(str(tmp_path / "file" / "below"))


def test_a_kill_at_any_step_of_a_write_leaves_the_old_object_or_the_new_one(
    crash_at_every_step: Callable[[str], list[Path]],
) -> None:
    runs = crash_at_every_step(
        "from pliska.coordinator.storage.storage import LocalStorage\n"
        "def prepare(directory):\n"
        "    LocalStorage(directory).write('jobs/a', [b'old'])\n"
        "def act(directory):\n"
        "    storage = LocalStorage(directory)\n"
        "    storage.write('jobs/a', [b'new ', b'object'])\n"
        "    storage.write('jobs/b/c', [b'another'])\n"
    )

    assert len(runs) > 10
    contents = [LocalStorage(run).read("jobs/a", 100) for run in runs]
    assert set(contents) == {b"old", b"new object"}
    assert contents == sorted(contents, reverse=True), "once new, the object stays new"
    for run in runs:
        names = LocalStorage(run).names("")
        assert names in (["jobs/a"], ["jobs/a", "jobs/b/c"])
    assert LocalStorage(runs[-1]).read("jobs/b/c", 100) == b"another"
