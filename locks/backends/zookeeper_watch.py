"""Waits for changes of the ZooKeeper store.

There are two kinds of watches. A path that may be a directory gets one watch
for it and all below it that stays: the first wait sets it and looks once
whether the change has happened already, and a later wait asks nothing. A
record of a session, which has none below it, gets one by the read that looks
at it, and the server forgets it with the change that it announces.

ZooKeeper announces a change before it answers anything that saw it, on one
connection, and so the watcher knows since which revision a path has not
changed. When the connection is lost everybody is woken and reads again.
Watches that nobody used for a while are removed.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

from kazoo.protocol.serialization import GetData

from pliska.locks.backends.base import Revision
from pliska.locks.backends.keys import directory_of
from pliska.locks.backends.zookeeper_answer import Answer
from pliska.locks.backends.zookeeper_link import ZookeeperLink
from pliska.locks.backends.zookeeper_reads import last_change, node_read
from pliska.locks.backends.zookeeper_requests import (
    AddWatch,
    One,
    Operation,
    ReadMany,
    RemoveWatch,
    Reply,
)
from pliska.locks.clock import SystemClock
from pliska.locks.errors import StoreUnavailableError

IDLE_S = 5.0
"""How long a watch is kept that nobody uses."""
STORE_CALL_S_MIN = 0.5
"""What setting a watch gets even when the caller's time is nearly over."""


class _Coverage(IntEnum):
    """Which changes the server announces."""

    NOTHING = 0
    RECORD = 1
    """The next one of the record itself."""
    ALL = 2
    """All of the record, and of those directly below it."""


class _Sleeper(ABC):
    """One who waits for a path to change."""

    def __init__(self) -> None:
        self.is_woken = False

    def wake(self) -> None:
        """The path has changed, or nobody knows. Called under the watcher's lock."""
        if not self.is_woken:
            self.is_woken = True
            self._wake()

    @abstractmethod
    def _wake(self) -> None:
        """Wake it; this must not block."""


class _Waiter(_Sleeper):
    """One who wants to know."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = threading.Event()

    def _wake(self) -> None:
        self.woken.set()


class _Reader(_Sleeper):
    """One who wants to read as soon as the path has changed.

    Whoever hears of the change sends the request, and the reader wakes when the
    answer is there.
    """

    def __init__(self, link: ZookeeperLink, reads: Sequence[Operation]) -> None:
        super().__init__()
        self.answer = Answer(ReadMany(reads))
        self._link = link

    def _wake(self) -> None:
        self._link.submit(self.answer)


@dataclass(slots=True)
class _Watch:
    """What is known of one path.

    Attributes:
        coverage: What the server announces.
        is_all_asked_for: Whether a watch of all was sent. From then on none of
            the record alone may be: to servers before 3.9 a connection has one
            kind of watch for a path, and the last one takes the place of the other.
        unchanged_since: The path has not changed after this revision, or None
            when that is not known.
    """

    sleepers: list[_Sleeper] = field(default_factory=list)
    coverage: _Coverage = _Coverage.NOTHING
    is_all_asked_for: bool = False
    unchanged_since: int | None = None
    used_s: float = 0.0


class ZookeeperWatcher:
    """Wakes threads of this process when a path changes. Implements `Events`."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._watches: OrderedDict[str, _Watch] = OrderedDict()
        self._just_changed: list[_Watch] = []

    def wait(self, link: ZookeeperLink, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`; `path` is ZooKeeper's."""
        until_s = self._clock.now_s() + timeout_s
        call_until_s = max(until_s, self._clock.now_s() + STORE_CALL_S_MIN)
        waiter = _Waiter()
        try:
            with self._watching(link, path, waiter) as watch:
                if not self._is_known_unchanged(watch, after, _Coverage.ALL) and self._has_changed(
                    link, path, watch, waiter, after, call_until_s
                ):
                    return True
                return waiter.woken.wait(max(0.0, until_s - self._clock.now_s()))
        except StoreUnavailableError:
            if self._clock.now_s() < call_until_s and link.is_usable:
                return True  # the connection broke meanwhile: whoever waits reads again
            raise

    def wait_and_read(
        self,
        link: ZookeeperLink,
        path: str,
        after: Revision,
        reads: Sequence[Operation],
        timeout_s: float,
    ) -> Reply | None:
        """Wait until a path has changed, and read what is there then or later.

        The read needs no sync. The server had made the change when it announced it, and the
        read is behind the announcement on one connection: "a client will never see an older
        view of the system", not even through another server, and "will never see a change for
        which it has set a watch until it first sees the watch event" (ZooKeeper Programmer's
        Guide, "Consistency Guarantees" and "ZooKeeper Watches").

        Args:
            link: Where to read.
            path: ZooKeeper's path of a directory, or of a record that was there at `after`.
            after: The revision of the caller's last look.
            reads: What to read.
            timeout_s: How long to wait.

        Returns:
            The answer, whose zxid may be older than `after` when the server is behind; None
            when the time passed.

        Raises:
            StoreUnavailableError: The connection broke: whoever waits reads again.
        """
        until_s = self._clock.now_s() + timeout_s
        call_until_s = max(until_s, self._clock.now_s() + STORE_CALL_S_MIN)
        reader = _Reader(link, reads)
        with self._watching(link, path, reader) as watch:
            if not self._is_known_unchanged(
                watch, after, _Coverage.RECORD
            ) and self._has_record_changed(link, path, watch, reader, after, call_until_s):
                with self._lock:
                    reader.wake()
            if not link.has_come(reader.answer, until_s) and not reader.is_woken:
                return None
        reply: Reply = link.wait(reader.answer, call_until_s)
        return reply

    def on_reply(self, zxid: int) -> None:
        """What was announced before this reply happened at or before `zxid`."""
        if self._just_changed:
            with self._lock:
                for watch in self._just_changed:
                    watch.unchanged_since = zxid
                self._just_changed = []

    def on_event(self, path: str) -> None:
        """The node `path` changed: wake those who wait for it or for its directory."""
        with self._lock:
            for watched in (path, directory_of(path)):
                watch = self._watches.get(watched)
                if watch is not None:
                    if watch.coverage is _Coverage.RECORD:
                        watch.coverage = _Coverage.NOTHING
                    watch.unchanged_since = None
                    self._just_changed.append(watch)
                    _wake(watch)

    def on_disconnect(self) -> None:
        """All watches are gone: wake everybody."""
        with self._lock:
            watches, self._watches = self._watches, OrderedDict()
            self._just_changed = []
            for watch in watches.values():
                watch.coverage = _Coverage.NOTHING
                watch.unchanged_since = None
                _wake(watch)

    @contextmanager
    def _watching(self, link: ZookeeperLink, path: str, sleeper: _Sleeper) -> Iterator[_Watch]:
        now_s = self._clock.now_s()
        with self._lock:
            watch = self._watches.setdefault(path, _Watch())
            watch.sleepers.append(sleeper)
            watch.used_s = now_s
            self._watches.move_to_end(path)
            self._remove_idle(link, now_s)
        try:
            yield watch
        finally:
            with self._lock:
                watch.sleepers.remove(sleeper)

    def _remove_idle(self, link: ZookeeperLink, now_s: float) -> None:
        while True:
            path, watch = next(iter(self._watches.items()))
            if watch.used_s + IDLE_S >= now_s:
                return
            self._watches.move_to_end(path)
            watch.used_s = now_s
            if not watch.sleepers:
                del self._watches[path]
                if watch.is_all_asked_for or watch.coverage is not _Coverage.NOTHING:
                    # Within the lock: whoever sets it again is behind this in the queue.
                    link.submit(Answer(RemoveWatch(path)))

    def _is_known_unchanged(self, watch: _Watch, after: int, needed: _Coverage) -> bool:
        with self._lock:
            since = watch.unchanged_since
            return watch.coverage >= needed and since is not None and after >= since

    def _has_record_changed(
        self,
        link: ZookeeperLink,
        path: str,
        watch: _Watch,
        sleeper: _Sleeper,
        after: int,
        until_s: float,
    ) -> bool:
        """As `_has_changed`, of a record that was there at `after`: one request if a session's."""
        look = Answer(One(GetData(path, True)))
        with self._lock:
            may_look = not watch.is_all_asked_for
            if may_look:
                link.submit(look)  # within the lock: before any watch of all
        if not may_look:
            return self._has_changed(link, path, watch, sleeper, after, until_s)
        reply: Reply = link.wait(look, until_s)
        node = node_read(link, reply.results[0])
        if node is None and reply.zxid >= after:
            return True
        if node is None or not node.owner:
            return self._has_changed(link, path, watch, sleeper, after, until_s)
        with self._lock:
            if sleeper.is_woken:
                return True
            watch.coverage = max(watch.coverage, _Coverage.RECORD)
            watch.unchanged_since = node.modified
        return node.modified > after

    def _has_changed(
        self,
        link: ZookeeperLink,
        path: str,
        watch: _Watch,
        sleeper: _Sleeper,
        after: int,
        until_s: float,
    ) -> bool:
        """Set the watch if it is not, and look whether the change has happened already."""
        if watch.coverage is not _Coverage.ALL:
            with self._lock:
                watch.is_all_asked_for = True
            zxid = link.ask(AddWatch(path), until_s)
            with self._lock:
                if sleeper.is_woken:  # by a change, or by the loss of the connection
                    return True
                watch.coverage = _Coverage.ALL
                watch.unchanged_since = zxid
            if after >= zxid:
                return False
        if last_change(link, path, until_s) > after:
            return True
        with self._lock:
            if sleeper.is_woken:
                return True
            watch.unchanged_since = after
        return False


def _wake(watch: _Watch) -> None:
    for sleeper in watch.sleepers:
        sleeper.wake()
