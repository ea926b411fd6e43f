"""What a watcher of configuration keys has not seen yet: at most one setting a key."""

import threading
from collections.abc import Callable, Iterable, Iterator

from pliska.discovery.setting import Setting
from pliska.locks import Clock
from pliska.locks.closing import Closing


class ConfigWatch(Closing):
    """The changes of some keys. Made by `ConfigView.watch`; safe to use from any thread.

    It begins with what the keys hold now. A change replaces an older one of the
    same key that was not taken yet, so a slow watcher skips but never lags, and
    takes no more memory than one setting a key.
    """

    def __init__(
        self, current: Iterable[Setting], clock: Clock, forget: Callable[["ConfigWatch"], None]
    ) -> None:
        """Use `ConfigView.watch`."""
        self._pending = {setting.key: setting for setting in current}
        self._clock = clock
        self._forget = forget
        self._changed = threading.Condition()
        self._is_closed = False

    def next(self, timeout_s: float | None = None) -> Setting | None:
        """The next change, waited for; None when the time passed or the watch was closed.

        A setting that is not `is_set` was deleted.
        """
        until_s = None if timeout_s is None else self._clock.now_s() + timeout_s
        with self._changed:
            while not self._pending and not self._is_closed:
                if until_s is not None and self._clock.now_s() >= until_s:
                    return None
                self._clock.wait(self._changed, until_s)
            if self._is_closed:
                return None
            return self._pending.pop(next(iter(self._pending)))

    def offer(self, setting: Setting) -> None:
        """Called by the view: something new."""
        with self._changed:
            # The youngest change is the last in line.
            self._pending.pop(setting.key, None)
            self._pending[setting.key] = setting
            self._changed.notify_all()

    def close(self) -> None:
        """Watch no longer, and wake who waits."""
        self._forget(self)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Setting]:
        """All changes from now on, until the watch is closed."""
        while (setting := self.next()) is not None:
            yield setting
