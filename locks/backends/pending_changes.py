"""What the paths that a feed follows went through since its reader last asked.

Whoever notices changes puts them in, from any thread; the reader waits for them
and takes all at once. A path takes a bounded amount of memory however long the
reader stays away.
"""

import threading
from collections.abc import Mapping

from pliska.locks.clock import Clock

KEYS_MAX = 64
"""More changed keys of one path than this are not told apart."""


class PendingChanges:
    """See `ChangeFeed.wait` for what it holds. Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._keys: dict[str, set[str] | None] = {}
        self._is_woken = False

    def put(self, path: str, key: str | None) -> None:
        """A key of `path` changed; None when it is not known which, if any."""
        with self._changed:
            keys = self._keys.setdefault(path, set())
            if keys is not None and key is not None and len(keys) < KEYS_MAX:
                keys.add(key)
            else:
                self._keys[path] = None
            self._changed.notify_all()

    def wake(self) -> None:
        """End the wait that goes on, or the next one."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def take(self, until_s: float) -> Mapping[str, frozenset[str] | None]:
        """Wait until there is something, and take it; empty when there is not, or after `wake`."""
        with self._changed:
            while not self._keys and not self._is_woken and self._clock.now_s() < until_s:
                self._clock.wait(self._changed, until_s)
            keys, self._keys = self._keys, {}
            self._is_woken = False
        return {path: None if each is None else frozenset(each) for path, each in keys.items()}
