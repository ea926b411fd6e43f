"""What `pliska.locks.backends.base.ChangeFeed` promises, on every store."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import Backend, LockUsageError, Session, StoreUnavailableError
from pliska.locks.backends.base import ChangeFeed

Connect = Callable[[], Backend]
OpenSession = Callable[..., Session]

PATIENCE_S = 20.0
Told = dict[str, "frozenset[str] | None"]


@pytest.fixture
def feed(backend: Backend) -> Iterator[ChangeFeed]:
    feed = backend.open_feed()
    yield feed
    feed.close()


def told(feed: ChangeFeed, *paths: str, patience_s: float = PATIENCE_S) -> Told:
    """What the feed says of paths until it has named each; all of them when time passed."""
    heard: Told = {}
    until_s = time.monotonic() + patience_s
    while not set(paths) <= heard.keys() and time.monotonic() < until_s:
        heard |= feed.wait(until_s - time.monotonic())
    return {path: heard[path] for path in heard if path in paths}


def silence(feed: ChangeFeed, patience_s: float = 0.3) -> list[str]:
    """What the feed says although nothing happens."""
    heard: list[str] = []
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        heard += feed.wait(until_s - time.monotonic())
    return heard


def test_a_path_is_named_once_when_it_is_followed(feed: ChangeFeed) -> None:
    feed.follow("d")
    assert told(feed, "d") == {"d": None}
    assert silence(feed) == []


@pytest.mark.replicated
def test_anothers_change_is_told_by_the_key_or_by_its_directory(
    feed: ChangeFeed, connect_store: Connect
) -> None:
    writer = connect_store()
    feed.follow("d/a")
    feed.follow("e")
    told(feed, "d/a", "e")
    record = writer.create("d/a", b"")
    assert "d/a" in (told(feed, "d/a")["d/a"] or {"d/a"})
    writer.create("e/x", b"")
    keys = told(feed, "e")["e"]
    while keys is not None and "e/x" not in keys:  # a store may tell of a new directory first
        keys = told(feed, "e")["e"]
    for change in (
        lambda: writer.update("d/a", b"2", record.modified),
        lambda: writer.delete("d/a"),
        lambda: writer.create("d/a", b"anew"),
    ):
        change()
        assert told(feed, "d/a").keys() == {"d/a"}


def test_what_is_not_followed_is_not_told(feed: ChangeFeed, backend: Backend) -> None:
    feed.follow("d")
    told(feed, "d")
    backend.create("other/d", b"")
    backend.create("e", b"")
    assert silence(feed) == []


def test_what_is_forgotten_is_not_told_and_can_be_followed_again(
    feed: ChangeFeed, backend: Backend
) -> None:
    feed.follow("d")
    feed.follow("e")
    told(feed, "d", "e")
    feed.forget("d")
    feed.forget("never followed")
    silence(feed)
    backend.create("d/a", b"")
    assert silence(feed) == []
    feed.follow("d")
    assert told(feed, "d") == {"d": None}
    backend.create("d/b", b"")
    assert told(feed, "d").keys() == {"d"}


def test_a_record_that_goes_with_its_session_is_told(
    feed: ChangeFeed, open_session: OpenSession
) -> None:
    session = open_session()
    session.backend.create("d/mine", b"", session.backend_session)
    feed.follow("d")
    told(feed, "d")
    session.close()
    assert told(feed, "d").keys() == {"d"}


def test_a_record_whose_lease_runs_out_is_told(feed: ChangeFeed, connect_store: Connect) -> None:
    other = connect_store()
    lost = other.open_session(1.0)
    other.create("d/mine", b"", lost)
    feed.follow("d")
    told(feed, "d")
    assert told(feed, "d").keys() == {"d"}


def test_one_thread_hears_of_many_paths(feed: ChangeFeed, backend: Backend) -> None:
    paths = [f"many/{number:02}/d" for number in range(80)]
    for path in paths:
        feed.follow(path)
    assert len(told(feed, *paths)) == len(paths)
    threads = threading.active_count()
    for path in paths:
        backend.create(f"{path}/a", b"")
    assert len(told(feed, *paths)) == len(paths)
    assert threading.active_count() == threads


@pytest.mark.replicated
def test_whoever_reads_after_each_word_ends_with_the_last_state(
    feed: ChangeFeed, backend: Backend, connect_store: Connect
) -> None:
    writers = [connect_store() for _ in range(3)]

    def write(number: int) -> None:
        record = writers[number].create(f"d/{number}", b"")
        for value in range(1, 30):
            record = writers[number].update(record.key, str(value).encode(), record.modified)

    feed.follow("d")
    values: set[bytes] = set()
    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, number) for number in range(3)]
        until_s = time.monotonic() + PATIENCE_S
        while values != {b"29"} and time.monotonic() < until_s:
            if feed.wait(until_s - time.monotonic()):
                values = {record.value for record in backend.list("d").records}
        for each in writing:
            each.result()
    assert values == {b"29"}


def test_following_ends_a_wait_and_so_does_waking(feed: ChangeFeed) -> None:
    feed.follow("d")
    told(feed, "d")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(told, feed, "e")
        feed.follow("e")
        assert waiting.result(timeout=10) == {"e": None}
        once = pool.submit(feed.wait, PATIENCE_S)
        feed.wake()
        assert once.result(timeout=10) == {}
    feed.wake()
    begun_s = time.monotonic()
    assert feed.wait(PATIENCE_S) == {}
    assert time.monotonic() - begun_s < PATIENCE_S / 2


def test_what_is_no_path_is_refused(feed: ChangeFeed) -> None:
    for path in ("", "a//b", "../x"):
        with pytest.raises(LockUsageError):
            feed.follow(path)


def test_a_feed_fails_once_its_backend_is_closed(connect_store: Connect) -> None:
    backend = connect_store()
    feed = backend.open_feed()
    feed.follow("d")
    told(feed, "d")
    backend.close()
    try:
        with pytest.raises(StoreUnavailableError):
            feed.wait(PATIENCE_S)
    finally:
        feed.close()
