"""The feed of a store that calls listeners of this process when something changed."""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from pliska.locks.backends.keys import check_key
from pliska.locks.backends.pending_changes import PendingChanges
from pliska.locks.clock import Clock

Listener = Callable[[str, str | None], None]
"""Gets the path that it listens to and the key that changed, None when it is not known which.
It must not block."""


class Listening(Protocol):
    """Who calls listeners. Safe to use from any thread."""

    def listen(self, path: str, listener: Listener) -> None:
        """Tell `listener` of each change of `path`, or directly below it, from now on."""

    def unlisten(self, path: str, listener: Listener) -> None:
        """Tell it no more of `path`."""


class ListeningFeed:
    """See `ChangeFeed`."""

    def __init__(self, source: Listening, clock: Clock, quiet_until_s: Callable[[], float]) -> None:
        """Follow nothing yet.

        Args:
            source: Where changes come from.
            clock: The source's.
            quiet_until_s: Until when the source says by itself what changed;
                whoever waits asks again then. Raises `StoreError` while it says nothing.
        """
        self._source = source
        self._clock = clock
        self._quiet_until_s = quiet_until_s
        self._pending = PendingChanges(clock)
        self._lock = threading.Lock()
        self._followed: set[str] = set()

    def follow(self, path: str) -> None:
        """See `ChangeFeed.follow`."""
        check_key(path)
        with self._lock:
            if path not in self._followed:
                self._source.listen(path, self._pending.put)
                self._followed.add(path)
        self._pending.put(path, None)

    def forget(self, path: str) -> None:
        """See `ChangeFeed.forget`."""
        with self._lock:
            if path in self._followed:
                self._followed.discard(path)
                self._source.unlisten(path, self._pending.put)

    def wait(self, timeout_s: float) -> Mapping[str, frozenset[str] | None]:
        """See `ChangeFeed.wait`."""
        until_s = self._clock.now_s() + timeout_s
        return self._pending.take(min(until_s, self._quiet_until_s()))

    def wake(self) -> None:
        """See `ChangeFeed.wake`."""
        self._pending.wake()

    def close(self) -> None:
        """See `ChangeFeed.close`."""
        for path in tuple(self._followed):
            self.forget(path)
