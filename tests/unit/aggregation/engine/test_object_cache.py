import hashlib
import os
from pathlib import Path

import pytest

from pliska.aggregation.engine import object_cache
from pliska.aggregation.engine.object_cache import ENTRY_BYTES_MAX, ObjectCache, default_cache


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "kernels")


def entry(cache: ObjectCache) -> Path:
    return next(cache.directory.iterdir())


def test_what_is_put_is_got(cache: ObjectCache) -> None:
    assert cache.get(b"key") is None
    cache.put(b"key", b"code")
    assert cache.get(b"key") == b"code"
    assert cache.get(b"other key") is None


def test_folder_and_entries_are_closed_to_others(cache: ObjectCache) -> None:
    cache.put(b"key", b"code")
    assert cache.directory.stat().st_mode & 0o777 == 0o700
    assert entry(cache).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("position", [0, 20, 60, -1])
def test_damaged_entry_is_not_used_and_is_replaced(cache: ObjectCache, position: int) -> None:
    cache.put(b"key", b"code")
    damaged = bytearray(entry(cache).read_bytes())
    damaged[position] ^= 1
    entry(cache).write_bytes(damaged)
    assert cache.get(b"key") is None
    cache.put(b"key", b"code")
    assert cache.get(b"key") == b"code"


@pytest.mark.parametrize("length", [0, 10, 80])
def test_entry_cut_short_is_not_used(cache: ObjectCache, length: int) -> None:
    cache.put(b"key", b"code")
    entry(cache).write_bytes(entry(cache).read_bytes()[:length])
    assert cache.get(b"key") is None


def test_entry_of_another_key_under_this_name_is_not_used(cache: ObjectCache) -> None:
    cache.put(b"key", b"code")
    stolen = entry(cache).read_bytes()
    (cache.directory / (hashlib.sha256(b"other").hexdigest() + ".o")).write_bytes(stolen)
    assert cache.get(b"other") is None


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o702])
def test_folder_open_to_others_is_neither_read_nor_written(cache: ObjectCache, mode: int) -> None:
    cache.put(b"key", b"code")
    cache.directory.chmod(mode)
    assert cache.get(b"key") is None
    cache.put(b"second", b"code")
    cache.directory.chmod(0o700)
    assert len(list(cache.directory.iterdir())) == 1


def test_entry_that_others_may_write_is_not_used(cache: ObjectCache) -> None:
    cache.put(b"key", b"code")
    entry(cache).chmod(0o620)
    assert cache.get(b"key") is None


def test_links_are_not_followed(cache: ObjectCache, tmp_path: Path) -> None:
    cache.put(b"key", b"code")
    moved = tmp_path / "elsewhere.o"
    name = entry(cache)
    name.rename(moved)
    name.symlink_to(moved)
    assert cache.get(b"key") is None
    name.unlink()
    os.link(moved, name)
    assert cache.get(b"key") is None
    linked = tmp_path / "link"
    linked.symlink_to(cache.directory)
    assert ObjectCache(linked).get(b"key") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_never_used(cache: ObjectCache) -> None:
    cache.put(b"key", b"code")
    os.chown(entry(cache), 12345, 12345)
    assert cache.get(b"key") is None
    os.chown(entry(cache), 0, 0)
    os.chown(cache.directory, 12345, 12345)
    assert cache.get(b"key") is None


def test_entry_above_the_limit_is_not_used(cache: ObjectCache) -> None:
    room = ENTRY_BYTES_MAX - object_cache.HEAD_BYTES
    cache.put(b"largest", bytes(room))
    assert cache.get(b"largest") == bytes(room)
    cache.put(b"too large", bytes(room + 1))
    assert cache.get(b"too large") is None


def test_oldest_entries_make_room(cache: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "ENTRIES_MAX", 3)
    for i in range(5):
        cache.put(b"%d" % i, b"code")
        os.utime(cache.directory / (hashlib.sha256(b"%d" % i).hexdigest() + ".o"), (i, i))
    assert [cache.get(b"%d" % i) for i in range(5)] == [None, None, b"code", b"code", b"code"]


def test_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ObjectCache(tmp_path / "file" / "kernels")
    cache.put(b"key", b"code")
    assert cache.get(b"key") is None


def test_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(object_cache.DIRECTORY_VARIABLE, raising=False)
    assert default_cache() == ObjectCache(tmp_path / "pliska" / "kernels")
    monkeypatch.setenv(object_cache.DIRECTORY_VARIABLE, str(tmp_path / "mine"))
    assert default_cache() == ObjectCache(tmp_path / "mine")
    monkeypatch.setenv(object_cache.DIRECTORY_VARIABLE, "")
    assert default_cache() is None
