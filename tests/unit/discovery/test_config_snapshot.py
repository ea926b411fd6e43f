import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pliska.discovery.config_snapshot import (
    REFRESH_S,
    SAVE_S,
    SNAPSHOT_BYTES_MAX,
    SnapshotKeeper,
    read_snapshot,
    write_snapshot,
)
from pliska.discovery.errors import SnapshotError
from pliska.discovery.schema import Schema, ValueKind
from pliska.discovery.setting import ChangeKind, Setting
from pliska.locks import ManualClock

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def setting(key: str, value: object, schema: Schema | None = None) -> Setting:
    return Setting(
        key=key,
        revision=1,
        is_set=True,
        value=value,
        schema=schema,
        change=ChangeKind.SET,
        written_at=NOON,
    )


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.json"
    write_snapshot(path, [setting("a", 1), setting("b", [2])], NOON, "memory:x")
    snapshot = read_snapshot(path)
    assert snapshot is not None
    assert snapshot.settings == (setting("a", 1), setting("b", [2]))
    assert (snapshot.saved_at, snapshot.store) == (NOON, "memory:x")
    assert snapshot.find("b") == setting("b", [2])
    assert snapshot.find("c") is None
    assert snapshot.age_s(NOON + timedelta(minutes=1)) == 60.0
    assert snapshot.age_s(NOON - timedelta(minutes=1)) == 0.0


def test_only_the_owner_can_read_it_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for value in (1, 2):
        write_snapshot(path, [setting("a", value)], NOON, "memory:x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_no_file_is_no_snapshot(tmp_path: Path) -> None:
    assert read_snapshot(tmp_path / "none") is None


def test_a_file_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot read the snapshot"):
        read_snapshot(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotError, match="cannot write the snapshot"):
        write_snapshot(tmp_path / "file" / "config.json", [], NOON, "memory:x")


def test_a_damaged_file_is_refused_and_said_to_be_removable(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_snapshot(path, [setting("a", 1)], NOON, "memory:x")
    whole = path.read_bytes()
    document = json.loads(whole)
    damaged = [
        b"",
        whole[:-1],
        b"[]",
        json.dumps({**document, "format": 2}).encode(),
        json.dumps({**document, "saved_at": "2030-01-01T12:00:00"}).encode(),
        json.dumps({**document, "settings": [7]}).encode(),
        json.dumps({**document, "settings": [{**document["settings"][0], "revision": 0}]}).encode(),
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(SnapshotError, match="remove it"):
            read_snapshot(path)


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(SNAPSHOT_BYTES_MAX + 1)
    with pytest.raises(SnapshotError, match="no snapshot"):
        read_snapshot(path)


def test_what_a_schema_refuses_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    bad = setting("a", "text", Schema(kind=ValueKind.INTEGER))
    write_snapshot(path, [bad, setting("b", 1)], NOON, "memory:x")
    snapshot = read_snapshot(path)
    assert snapshot is not None
    assert [each.key for each in snapshot.settings] == ["b"]


@pytest.fixture
def kept(tmp_path: Path) -> tuple[ManualClock, SnapshotKeeper, Callable[[], object]]:
    clock, path = ManualClock(), tmp_path / "config.json"
    keeper = SnapshotKeeper(path, "memory:x", clock, lambda: NOON)

    def value() -> object:
        snapshot = read_snapshot(path)
        return None if snapshot is None else snapshot.settings[0].value

    return clock, keeper, value


def test_changes_are_saved_soon_but_not_each_by_itself(
    kept: tuple[ManualClock, SnapshotKeeper, Callable[[], object]],
) -> None:
    clock, keeper, value = kept
    keeper.confirmed([setting("a", 1)], is_changed=True)
    assert value() == 1
    keeper.confirmed([setting("a", 2)], is_changed=True)
    assert value() == 1
    assert keeper.due_in_s == SAVE_S
    clock.advance(SAVE_S)
    keeper.confirmed([setting("a", 2)], is_changed=False)
    assert value() == 2


def test_an_unchanged_snapshot_is_saved_now_and_then(
    kept: tuple[ManualClock, SnapshotKeeper, Callable[[], object]],
) -> None:
    clock, keeper, value = kept
    keeper.confirmed([setting("a", 1)], is_changed=False)
    clock.advance(REFRESH_S - 1)
    keeper.confirmed([setting("a", "as if new")], is_changed=False)
    assert value() == 1
    clock.advance(1)
    keeper.confirmed([setting("a", "as if new")], is_changed=False)
    assert value() == "as if new"
