"""The changes of many paths in ZooKeeper: a recursive watch each, on a connection of its own.

The watches stay set, so that nothing is asked while nothing changes. When the
connection is lost they are set again, and what happened meanwhile is unknown.
"""

import threading
from collections.abc import Mapping

from pliska.locks.backends.base import ChangeFeed
from pliska.locks.backends.keys import check_key, directory_of
from pliska.locks.backends.pending_changes import PendingChanges
from pliska.locks.backends.zookeeper import RECORDS_SESSION_S, ZookeeperBackend
from pliska.locks.backends.zookeeper_connection import Purpose
from pliska.locks.backends.zookeeper_link import ZookeeperLink
from pliska.locks.backends.zookeeper_options import ZookeeperOptions
from pliska.locks.backends.zookeeper_plan import Layout
from pliska.locks.backends.zookeeper_requests import AddWatch, RemoveWatch, Request
from pliska.locks.clock import SystemClock
from pliska.locks.errors import StoreUnavailableError

STORE_CALL_S_MIN = 0.5
"""What setting watches gets even when the caller's time is nearly over."""
CLOSE_TIMEOUT_S = 1.0
WATCHES_AT_A_TIME = 50
"""So many are set before what was found out so far is handed over."""


class ZookeeperStore(ZookeeperBackend):
    """A client of an ensemble that can also follow many paths."""

    def open_feed(self) -> ChangeFeed:
        """See `Backend.open_feed`. Takes one connection when it first waits."""
        self._home.check()
        return ZookeeperFeed(self._options, self._layout, self._link)


class ZookeeperFeed:
    """See `ChangeFeed`. Implements `Events`."""

    def __init__(self, options: ZookeeperOptions, layout: Layout, records: ZookeeperLink) -> None:
        """Follow nothing yet.

        Args:
            options: Servers and credentials.
            layout: Where records are.
            records: The backend's own connection; the feed ends with it.
        """
        self._options = options
        self._layout = layout
        self._records = records
        self._clock = SystemClock()
        self._pending = PendingChanges(self._clock)
        self._link: ZookeeperLink | None = None
        self._lock = threading.Lock()
        self._followed: set[str] = set()
        self._announced: set[str] = set()
        """The paths whose changes the server announces; none after the connection was lost."""
        self._losses = 0

    def follow(self, path: str) -> None:
        """See `ChangeFeed.follow`."""
        check_key(path)
        with self._lock:
            self._followed.add(path)
        self.wake()

    def forget(self, path: str) -> None:
        """See `ChangeFeed.forget`."""
        with self._lock:
            self._followed.discard(path)
        self.wake()

    def wait(self, timeout_s: float) -> Mapping[str, frozenset[str] | None]:
        """See `ChangeFeed.wait`."""
        until_s = self._clock.now_s() + timeout_s
        call_until_s = max(until_s, self._clock.now_s() + STORE_CALL_S_MIN)
        if not self._records.is_usable:
            raise StoreUnavailableError("this client of ZooKeeper is closed: connect again")
        link = self._opened_link()
        with self._lock:
            unwanted = tuple(self._announced - self._followed)
            missing = tuple(self._followed - self._announced)
        for path in unwanted:
            self._unwatch(link, path, call_until_s)
        for path in missing[:WATCHES_AT_A_TIME]:
            self._watch(link, path, call_until_s)
        if len(missing) > WATCHES_AT_A_TIME:  # the rest at the next call
            until_s = self._clock.now_s()
        return self._pending.take(until_s)

    def wake(self) -> None:
        """See `ChangeFeed.wake`."""
        self._pending.wake()

    def close(self) -> None:
        """See `ChangeFeed.close`."""
        if self._link is not None:
            self._link.close(CLOSE_TIMEOUT_S)

    def on_reply(self, zxid: int) -> None:
        """See `Events`: what is announced needs no revision here."""

    def on_event(self, path: str) -> None:
        """See `Events`."""
        key = path.removeprefix(self._layout.path("")).removeprefix("/")
        with self._lock:
            for watched in (key, directory_of(key)):
                if watched in self._followed:
                    self._pending.put(watched, key)

    def on_disconnect(self) -> None:
        """See `Events`."""
        with self._lock:
            self._losses += 1
            self._announced.clear()
        self.wake()

    def _opened_link(self) -> ZookeeperLink:
        if self._link is None:
            self._link = ZookeeperLink(self._options, RECORDS_SESSION_S, Purpose.RECORDS, self)
        return self._link

    def _watch(self, link: ZookeeperLink, path: str, until_s: float) -> None:
        losses = self._losses
        self._ask(link, AddWatch(self._layout.path(path)), until_s)
        with self._lock:
            if self._losses == losses:
                self._announced.add(path)
        # What happened before is unknown.
        self._pending.put(path, None)

    def _unwatch(self, link: ZookeeperLink, path: str, until_s: float) -> None:
        self._ask(link, RemoveWatch(self._layout.path(path)), until_s)
        with self._lock:
            self._announced.discard(path)

    def _ask(self, link: ZookeeperLink, request: Request, until_s: float) -> None:
        while True:
            try:
                link.ask(request, until_s)
            except StoreUnavailableError:
                if not link.is_usable or self._clock.now_s() >= until_s:
                    raise
            else:
                return
