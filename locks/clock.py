"""Time as leases need it: seconds that never jump, and waiting that a test can move.

`SystemClock` counts time since boot including suspend, so a laptop that slept
through its lease knows it. It is not wall-clock time and means nothing on
another machine or after a reboot. Used by sessions, recipes and backends.
"""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now_s(self) -> float:
        """Seconds since a fixed but arbitrary moment; never goes back."""

    def wait(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait until `condition` is notified or the clock shows `until_s`; may wake early.

        The caller holds the condition, and checks what it waited for in a loop.
        """


class SystemClock:
    """Linux's CLOCK_BOOTTIME: monotonic, shared by all processes of one boot, counts suspend."""

    def now_s(self) -> float:
        """Seconds since boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wait(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait for a notification in real time."""
        condition.wait(None if until_s is None else max(0.0, until_s - self.now_s()))


class ManualClock:
    """A clock that stands still until `advance`: for tests and simulation."""

    def __init__(self, start_s: float = 1_000.0) -> None:
        self._now_s = start_s
        self._lock = threading.Lock()
        self._waiting: list[threading.Condition] = []

    def now_s(self) -> float:
        """The time that was set."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move time forward and wake everybody who waits by this clock."""
        with self._lock:
            self._now_s += seconds
            waiting = list(self._waiting)
        for condition in waiting:
            with condition:
                condition.notify_all()

    def wait(self, condition: threading.Condition, until_s: float | None) -> None:
        """Wait for a notification or for the next `advance`."""
        with self._lock:
            if until_s is not None and until_s <= self._now_s:
                return
            self._waiting.append(condition)
        try:
            condition.wait()
        finally:
            with self._lock:
                self._waiting.remove(condition)
