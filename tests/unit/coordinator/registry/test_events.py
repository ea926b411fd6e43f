"""Events come in order, each once, from any cursor on, whatever happens meanwhile."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pliska.coordinator.registry import (
    Cursor,
    EndedOperation,
    Event,
    Events,
    HistoryEntry,
    Mark,
    RegistryConflictError,
    RegistryUsageError,
    Retention,
)
from pliska.locks import Backend, StoreUnavailableError, connect

START = Cursor()


@pytest.fixture
def busy(desk: Any) -> Any:
    """Return a registry in which much has happened, to two models."""
    desk.register(1, 2, 3)
    desk.promote(1, 2)
    desk.promote(3, alias="stage")
    desk.registry.rollback(desk.rollback())
    keep = desk.registry.housekeeping("bob")
    keep.deprecate("digits", 3, "old")
    keep.reinstate("digits", 2, "was the camera")
    desk.model = "other"
    desk.register(1)
    desk.promote(1)
    desk.model = "digits"
    keep.collect(Retention(keep_last=1, history=1))
    return desk


def words(events: list[Event]) -> list[tuple[object, ...]]:
    return [_word(event.record) for event in events]


def _word(record: Mark | HistoryEntry | EndedOperation) -> tuple[object, ...]:
    match record:
        case Mark():
            return (f"{record.model}:{record.version}", record.state)
        case HistoryEntry():
            return (f"{record.model}@{record.alias}", record.kind, record.to_version)
        case EndedOperation():
            return (f"{record.operation.model}@{record.operation.alias}", record.ending)


def test_all_that_happened_is_told_in_order(busy: Any) -> None:
    assert words(busy.registry.events("digits").after(START)) == [
        ("digits:1", "READY"),
        ("digits:2", "READY"),
        ("digits:3", "READY"),
        ("digits@prod", "DONE"),
        ("digits@prod", "promote", 1),
        ("digits@prod", "DONE"),
        ("digits@prod", "promote", 2),
        ("digits@stage", "DONE"),
        ("digits@stage", "promote", 3),
        ("digits@prod", "DONE"),
        ("digits@prod", "rollback", 1),
        ("digits:2", "QUARANTINED"),
        ("digits:3", "DEPRECATED"),
        ("digits:2", "READY"),
        ("digits:2", "DELETED"),
    ]


def test_from_any_cursor_the_rest_follows_without_loss_or_repetition(busy: Any) -> None:
    events = busy.registry.events()
    told = events.after(START)
    assert len(told) == 18
    cursors = [event.cursor for event in told]
    assert cursors == sorted(set(cursors))
    for index, cursor in enumerate(cursors):
        assert events.after(events.check(Cursor.parse(str(cursor)))) == told[index + 1 :]
    assert events.newest() == cursors[-1]


@pytest.mark.parametrize(
    ("model", "alias", "count"),
    [("digits", None, 15), ("other", None, 3), ("digits", "prod", 6), ("digits", "stage", 2),
     ("digits", "canary", 0), ("nobody", None, 0)],
)  # fmt: skip
def test_a_scope_leaves_the_rest_out(busy: Any, model: str, alias: str | None, count: int) -> None:
    assert len(busy.registry.events(model, alias).after(START)) == count


def test_a_cursor_of_another_store_is_refused(busy: Any) -> None:
    newest = busy.registry.events().newest()
    for cursor in (
        Cursor(newest.revision + 1, newest.key),
        Cursor(newest.revision, f"{newest.key}9"),
        Cursor(1, "marks/digits/000000000001.000001"),
    ):
        with pytest.raises(RegistryConflictError, match="another store"):
            busy.registry.events().check(cursor)


@pytest.mark.parametrize(
    "text",
    ["", "1", "00", "-1:marks/a", "1:", "1:a", "1:../x", "1:/x", "x:marks/a", "1:marks/a\n",
     "1:marks/a b", "9" * 20 + ":marks/a", "1:marks/" + "a" * 512],
)  # fmt: skip
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(RegistryUsageError):
        Cursor.parse(text)


@pytest.mark.parametrize("text", ["0", "17:marks/digits/000000000001.000001"])
def test_a_cursor_is_read_and_written_the_same(text: str) -> None:
    assert str(Cursor.parse(text)) == text


def test_an_event_between_two_looks_is_told_in_its_place(busy: Any) -> None:
    """A mark comes after its directory was read, and a move after that in one that was not."""
    busy.register(4)
    events = busy.registry.events()
    start = events.newest()

    class Racing(Events):
        is_first = True

        def _directories(self):  # type: ignore[no-untyped-def]
            for directory in super()._directories():
                if self.is_first and "/history/digits/prod" in directory:
                    self.is_first = False
                    busy.registry.housekeeping("bob").deprecate("digits", 1, "old")
                    busy.promote(4, alias="canary")
                    busy.promote(4)
                yield directory

    racing = Racing(busy.registry.namespace, events.scope)
    told = racing.after(start)
    told += racing.after(told[-1].cursor)
    assert told == events.after(start)
    assert ("digits:1", "DEPRECATED") in words(told)


@pytest.fixture(params=["memory", "embedded", "zookeeper", "consul"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Backend:
    """Return a connection to each kind of store."""
    if request.param == "memory":
        return connect("memory:")
    if request.param == "embedded":
        return connect(f"embedded:{tmp_path / 'store'}")
    address: str = request.getfixturevalue(request.param).fresh_address()
    return connect(address)


def test_a_follower_sees_what_three_writers_do_once_and_in_order(
    store: Backend, storage: Any, desk_on: Any, tensors: Callable[[int], Any]
) -> None:
    desk = desk_on(store, storage)
    desk.register(1, 2)

    def write(writer: int) -> None:
        keep = desk.registry.housekeeping("bob")
        for turn in range(6):
            desk.promote(1 + turn % 2, alias=f"alias-{writer}")
            desk.registry.register(f"model-{writer}", tensors(turn), actor="ann")
            keep.deprecate(f"model-{writer}", turn + 1, "old")

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    events = desk.registry.events()
    cursor, told = START, []
    while any(writer.is_alive() for writer in writers) or events.newest() > cursor:
        told += events.after(cursor)
        cursor = told[-1].cursor if told else cursor
    assert len(told) == 2 + 3 * 6 * 4
    assert told == events.after(START)
    following = events.follow(cursor)
    assert next(following) is None
    desk.registry.rollback(desk.rollback(alias="alias-0"))
    news = (event for event in following if event is not None)
    assert words([next(news), next(news), next(news)]) == [
        ("digits@alias-0", "DONE"),
        ("digits@alias-0", "rollback", 1),
        ("digits:2", "QUARANTINED"),
    ]
    assert desk.registry.inspector(reads_every_byte=True).inspect().problems == ()
    following.close()
    store.close()


def test_following_waits_for_what_happens_next_and_through_an_outage(
    busy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliska.coordinator.registry.events.WAIT_S", 0.05)
    busy.register(4)
    events = Events(busy.registry.namespace, busy.registry.events().scope, pause=lambda _: None)
    following = events.follow(events.newest())
    assert next(following) is None
    busy.promote(4)
    seen = [event for event in itertools.islice(following, 20) if event is not None]
    assert words(seen) == [("digits@prod", "DONE"), ("digits@prod", "promote", 4)]

    def no_answer(*_: object, **__: object) -> None:
        raise StoreUnavailableError("no connection")

    with monkeypatch.context() as outage:
        outage.setattr(type(busy.backend), "list", no_answer)
        busy.registry.housekeeping("bob").deprecate("digits", 1, "old")
        assert set(itertools.islice(following, 5)) == {None}
    seen = [event for event in itertools.islice(following, 20) if event is not None]
    assert words(seen) == [("digits:1", "DEPRECATED")]
    following.close()
