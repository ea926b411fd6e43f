"""Configuration on every store: one winner, true watches, and nothing lost in an outage."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pliska.discovery import (
    Authorship,
    ChangeKind,
    ConfigConflictError,
    ConfigFormatError,
    ConfigStore,
    ConfigView,
    NoSettingError,
    Schema,
    ValueKind,
    ValueRefusedError,
)
from pliska.discovery.config_watch import ConfigWatch
from pliska.locks import Backend
from services.outage import Outage
from services.waiting import wait_until

Connect = Callable[[], Backend]
Follow = Callable[..., ConfigView]

PATIENCE_S = 15.0
RATE = Schema(kind=ValueKind.NUMBER, minimum=0, maximum=1)


@pytest.fixture
def config(backend: Backend) -> ConfigStore:
    return ConfigStore(backend)


@pytest.fixture
def line(connect_store: Connect) -> Outage:
    """A client whose line can be cut."""
    return Outage(connect_store())


@pytest.fixture
def follow() -> Iterator[Follow]:
    views: list[ConfigView] = []

    def follow_all(backend: Backend, snapshot: Path | None = None) -> ConfigView:
        views.append(ConfigView(backend, snapshot))
        return views[-1]

    yield follow_all
    for view in views:
        view.close()


def seen(watch: ConfigWatch) -> tuple[int, object]:
    setting = watch.next(PATIENCE_S)
    assert setting is not None
    return setting.revision, setting.value


def test_what_is_set_is_read_by_another_client(config: ConfigStore, connect_store: Connect) -> None:
    setting = config.set("training.lr", 0.5, by=Authorship("ann", "first try"))
    assert (setting.revision, setting.value, setting.author) == (1, 0.5, "ann")
    assert ConfigStore(connect_store()).get("training.lr") == setting


def test_what_was_never_set_is_an_error(config: ConfigStore) -> None:
    with pytest.raises(NoSettingError, match=r"training\.lr is not set"):
        config.get("training.lr")
    assert config.look_up("training.lr") is None
    with pytest.raises(NoSettingError):
        config.delete("training.lr")


def test_every_kind_of_value_comes_back_as_it_was(config: ConfigStore) -> None:
    for value in (None, True, 7, 0.1, "text", "", [1, "a"], {"a": {"b": []}}):
        config.set("key", value)
        stored = config.get("key").value
        assert (stored, type(stored)) == (value, type(value))


def test_compare_and_set_has_one_winner_a_revision(
    config: ConfigStore, connect_store: Connect
) -> None:
    config.set("key", "begin")
    clients = [ConfigStore(connect_store()) for _ in range(6)]

    def attempt(number: int) -> bool:
        try:
            clients[number].set("key", number, expected=1)
        except ConfigConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(attempt, range(6)))
    assert won.count(True) == 1
    assert (config.get("key").revision, config.get("key").value) == (2, won.index(True))


def test_expecting_the_wrong_revision_changes_nothing(config: ConfigStore) -> None:
    config.set("key", 1, expected=0)
    for expected in (0, 2):
        with pytest.raises(ConfigConflictError, match="key is at revision 1"):
            config.set("key", 2, expected=expected)
    with pytest.raises(ConfigConflictError):
        config.delete("key", expected=7)
    assert config.get("key").value == 1


def test_writers_without_an_expectation_all_get_through(
    config: ConfigStore, connect_store: Connect
) -> None:
    clients = [ConfigStore(connect_store()) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: clients[number].set("key", number), range(4)))
    assert config.get("key").revision == 4
    assert {each.value for each in config.history("key")} == {0, 1, 2, 3}


def test_a_schema_refuses_a_bad_value_and_nothing_is_written(config: ConfigStore) -> None:
    config.declare("training.lr", RATE)
    config.set("training.lr", 0.5)
    for value in (1.5, -1, "0.5", True, None, [0.5]):
        with pytest.raises(ValueRefusedError, match="refuses it"):
            config.set("training.lr", value)
    assert config.get("training.lr").value == 0.5
    assert len(config.history("training.lr")) == 2


def test_a_schema_that_comes_later_stops_the_delivery_of_what_it_refuses(
    config: ConfigStore,
) -> None:
    config.set("training.lr", 7)
    setting = config.declare("training.lr", RATE)
    assert setting.problem() is not None
    with pytest.raises(ConfigFormatError, match="is not delivered"):
        config.get("training.lr")
    assert config.list().settings == ()
    assert "7 is above" in config.list().problems["training.lr"]
    config.set("training.lr", 0.7)
    assert config.get("training.lr").value == 0.7


def test_the_history_tells_who_changed_what_and_why(config: ConfigStore) -> None:
    config.set("key", 1, by=Authorship("ann", "begin"))
    config.set("key", 2, by=Authorship("bob", "more"))
    config.delete("key", by=Authorship("ann", "stop"))
    told = [(s.revision, s.change, s.value, s.author, s.note) for s in config.history("key")]
    assert told == [
        (3, ChangeKind.DELETE, None, "ann", "stop"),
        (2, ChangeKind.SET, 2, "bob", "more"),
        (1, ChangeKind.SET, 1, "ann", "begin"),
    ]


def test_a_rollback_is_a_new_revision(config: ConfigStore) -> None:
    for value in ("a", "b", "c"):
        config.set("key", value)
    setting = config.roll_back("key", 1)
    assert (setting.revision, setting.value, setting.change) == (4, "a", ChangeKind.ROLLBACK)
    assert setting.note == "back to revision 1"
    assert [each.value for each in config.history("key")] == ["a", "c", "b", "a"]
    with pytest.raises(NoSettingError, match="no revision 9"):
        config.roll_back("key", 9)


def test_a_rollback_to_a_time_takes_what_was_in_force_then(backend: Backend) -> None:
    hour = datetime(2030, 1, 1, 12, tzinfo=UTC)
    times = iter([hour, hour + timedelta(hours=1), hour + timedelta(hours=2)])
    config = ConfigStore(backend, now=lambda: next(times))
    config.set("key", "noon")
    config.set("key", "one")
    setting = config.roll_back_to_time("key", hour + timedelta(minutes=59))
    assert (setting.revision, setting.value) == (3, "noon")
    with pytest.raises(NoSettingError, match="does not reach back"):
        config.roll_back_to_time("key", hour - timedelta(minutes=1))


def test_a_rollback_obeys_the_schema_of_today(config: ConfigStore) -> None:
    config.set("training.lr", 7)
    config.declare("training.lr", RATE)
    with pytest.raises(ValueRefusedError):
        config.roll_back("training.lr", 1)


def test_a_rollback_to_a_deletion_deletes(config: ConfigStore) -> None:
    config.set("key", 1)
    config.delete("key")
    config.set("key", 2)
    assert not config.roll_back("key", 2).is_set
    with pytest.raises(NoSettingError):
        config.get("key")


def test_revisions_go_on_after_the_record_itself_was_removed(
    config: ConfigStore, backend: Backend
) -> None:
    config.set("key", 1)
    config.set("key", 2)
    backend.delete("config/values/key")
    assert config.look_up("key") is None
    assert config.set("key", 3, expected=2).revision == 3


def test_a_watch_begins_with_the_present_and_sees_what_follows(
    config: ConfigStore, backend: Backend, follow: Follow
) -> None:
    config.set("key", "before")
    config.set("other", "not watched")
    view = follow(backend)
    with view.watch("key", "later") as watch:
        assert seen(watch) == (1, "before")
        config.set("key", "after")
        assert seen(watch) == (2, "after")
        config.set("other", "still not watched")
        config.set("later", "new")
        assert seen(watch) == (1, "new")
        config.delete("key")
        setting = watch.next(PATIENCE_S)
        assert setting is not None
        assert (setting.revision, setting.is_set) == (3, False)


def test_a_watch_sees_revisions_in_order_and_ends_with_the_last(
    config: ConfigStore, connect_store: Connect, follow: Follow
) -> None:
    view = follow(connect_store())
    watch = view.watch("key")
    revisions: list[int] = []

    def observe() -> None:
        revisions.extend(setting.revision for setting in watch)

    observer = threading.Thread(target=observe)
    observer.start()
    writers = [ConfigStore(connect_store()) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: [writers[n].set("key", [n, i]) for i in range(25)], range(2)))
    last = config.get("key").revision
    assert last == 50
    wait_until(lambda: bool(revisions) and revisions[-1] == last)
    watch.close()
    observer.join(PATIENCE_S)
    assert revisions == sorted(set(revisions))


def test_deleted_and_set_to_the_same_again_in_an_outage_is_delivered(
    config: ConfigStore, line: Outage, backend: Backend, follow: Follow
) -> None:
    config.set("key", "same")
    view = follow(line)
    watch = view.watch("key")
    assert seen(watch) == (1, "same")
    line.is_cut = True
    config.delete("key")
    config.set("key", "same")
    line.is_cut = False
    assert seen(watch) == (3, "same")
    line.is_cut = True
    backend.delete("config/values/key")
    config.set("key", "same")
    line.is_cut = False
    assert seen(watch) == (4, "same")


def test_in_an_outage_the_last_good_value_is_served_with_its_age(
    config: ConfigStore, line: Outage, follow: Follow
) -> None:
    config.set("key", "good")
    view = follow(line)
    assert view.wait_until_known(PATIENCE_S)
    assert not view.get("key").is_stale
    line.is_cut = True
    config.set("key", "unseen")
    wait_until(lambda: view.get("key").is_stale)
    reading = view.get("key")
    assert reading.setting.value == view.value("key") == "good"
    assert "cut the line" in reading.reason
    wait_until(lambda: view.get("key").age_s > reading.age_s)
    line.is_cut = False
    wait_until(lambda: view.value("key") == "unseen")
    assert not view.get("key").is_stale


def test_a_bad_value_in_the_store_leaves_the_last_good_one_in_place(
    config: ConfigStore, backend: Backend, follow: Follow
) -> None:
    config.declare("key", RATE)
    good = config.set("key", 0.5)
    view = follow(backend)
    watch = view.watch("key")
    assert seen(watch) == (2, 0.5)
    record = backend.get("config/values/key")
    assert record is not None
    refused = record.value.replace(b'"value":0.5', b'"value":5.5')
    record = backend.update(record.key, refused, record.modified)
    wait_until(lambda: view.get("key").is_stale)
    assert view.get("key").setting == good
    assert "5.5 is above the maximum" in view.get("key").reason
    backend.update(record.key, b"no JSON at all", record.modified)
    wait_until(lambda: "is not JSON" in view.get("key").reason)
    assert watch.next(0) is None
    assert view.value("key") == 0.5


def test_a_store_that_is_suddenly_empty_does_not_wipe_what_is_known(
    config: ConfigStore, backend: Backend, follow: Follow
) -> None:
    config.set("key", 1)
    view = follow(backend)
    assert view.wait_until_known(PATIENCE_S)
    backend.delete("config/values/key")
    wait_until(lambda: view.get("key").is_stale)
    assert view.value("key") == 1


def test_a_process_that_starts_in_an_outage_begins_with_its_snapshot(
    config: ConfigStore, line: Outage, follow: Follow, tmp_path: Path
) -> None:
    config.set("key", "kept")
    snapshot = tmp_path / "config.json"
    first = follow(line, snapshot)
    wait_until(snapshot.exists)
    first.close()
    line.is_cut = True
    second = follow(line, snapshot)
    reading = second.get("key")
    assert (reading.setting.value, reading.is_stale) == ("kept", True)
    with second.watch("key") as watch:
        assert seen(watch) == (1, "kept")
        line.is_cut = False
        config.set("key", "fresh")
        assert seen(watch) == (2, "fresh")


def test_all_keys_are_listed_with_and_without_a_value(config: ConfigStore) -> None:
    config.set("b", 2)
    config.declare("a", RATE)
    assert [(each.key, each.is_set) for each in config.list().settings] == [
        ("a", False),
        ("b", True),
    ]


def test_the_history_keeps_the_last_revisions(
    config: ConfigStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliska.discovery.config_store.HISTORY_MAX", 4)
    for number in range(1, 8):
        assert config.set("key", number).revision == number
    assert [each.revision for each in config.history("key")] == [7, 6, 5, 4]
