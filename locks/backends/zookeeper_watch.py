"""Waits for changes of the ZooKeeper store, with one watch a path that stays.

The first wait for a path sets a recursive watch on it and looks once whether
the change has happened already. From then on the watch is kept, so a later
wait asks nothing: ZooKeeper announces a change before it answers anything that
saw it, on one connection, and so the watcher knows since which revision a path
has not changed. When the connection is lost everybody is woken and reads
again. Watches that nobody used for a while are removed.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from pliska.locks.backends.base import Revision
from pliska.locks.backends.keys import directory_of
from pliska.locks.backends.zookeeper_link import ZookeeperLink
from pliska.locks.backends.zookeeper_reads import last_change
from pliska.locks.backends.zookeeper_requests import AddWatch, RemoveWatch
from pliska.locks.clock import SystemClock
from pliska.locks.errors import StoreUnavailableError

IDLE_S = 5.0
"""How long a watch is kept that nobody uses."""
STORE_CALL_S_MIN = 0.5
"""What setting a watch gets even when the caller's time is nearly over."""


@dataclass(slots=True)
class _Watch:
    """What is known of one path.

    Attributes:
        unchanged_since: The path has not changed after this revision, or None
            when that is not known.
        is_set: Whether the server announces changes.
    """

    waiting: list[threading.Event] = field(default_factory=list)
    unchanged_since: int | None = None
    is_set: bool = False
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
        changed = threading.Event()
        watch = self._enter(link, path, changed)
        try:
            if not self._is_known_unchanged(watch, after) and self._has_changed(
                link, path, watch, changed, after, call_until_s
            ):
                return True
            return changed.wait(max(0.0, until_s - self._clock.now_s()))
        except StoreUnavailableError:
            if self._clock.now_s() < call_until_s and link.is_usable:
                return True  # the connection broke meanwhile: whoever waits reads again
            raise
        finally:
            with self._lock:
                watch.waiting.remove(changed)

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
                    watch.unchanged_since = None
                    self._just_changed.append(watch)
                    _wake(watch)

    def on_disconnect(self) -> None:
        """All watches are gone: wake everybody."""
        with self._lock:
            watches, self._watches = self._watches, OrderedDict()
            self._just_changed = []
            for watch in watches.values():
                watch.is_set = False
                watch.unchanged_since = None
                _wake(watch)

    def _enter(self, link: ZookeeperLink, path: str, changed: threading.Event) -> _Watch:
        now_s = self._clock.now_s()
        with self._lock:
            watch = self._watches.setdefault(path, _Watch())
            watch.waiting.append(changed)
            watch.used_s = now_s
            self._watches.move_to_end(path)
            self._remove_idle(link, now_s)
        return watch

    def _remove_idle(self, link: ZookeeperLink, now_s: float) -> None:
        while True:
            path, watch = next(iter(self._watches.items()))
            if watch.used_s + IDLE_S >= now_s:
                return
            self._watches.move_to_end(path)
            watch.used_s = now_s
            if not watch.waiting:
                del self._watches[path]
                if watch.is_set:
                    # Within the lock: whoever sets it again is behind this in the queue.
                    link.send_unanswered(RemoveWatch(path))

    def _is_known_unchanged(self, watch: _Watch, after: int) -> bool:
        with self._lock:
            since = watch.unchanged_since
            return watch.is_set and since is not None and after >= since

    def _has_changed(
        self,
        link: ZookeeperLink,
        path: str,
        watch: _Watch,
        changed: threading.Event,
        after: int,
        until_s: float,
    ) -> bool:
        """Set the watch if it is not, and look whether the change has happened already."""
        if not watch.is_set:
            zxid = link.ask(AddWatch(path), until_s)
            with self._lock:
                if changed.is_set():  # by a change, or by the loss of the connection
                    return True
                watch.is_set = True
                watch.unchanged_since = zxid
            if after >= zxid:
                return False
        if last_change(link, path, until_s) > after:
            return True
        with self._lock:
            if changed.is_set():
                return True
            watch.unchanged_since = after
        return False


def _wake(watch: _Watch) -> None:
    for waiting in watch.waiting:
        waiting.set()
