"""The event that something held was lost: awaited, polled, or told by a callback."""

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class LossSignal:
    """Like `threading.Event`, but `is_set` is computed when it is read.

    A process that was stopped past its lease sees the loss in its first look
    after it resumes, before any thread had time to announce it.
    """

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        self._is_lost = is_lost
        self._announced = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []

    def is_set(self) -> bool:
        """Whether it is lost by now."""
        return self._announced.is_set() or self._is_lost()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the loss; False when the time passed without one."""
        if not self.is_set():
            self._announced.wait(timeout_s)
        return self.is_set()

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once in a thread of its own when it is lost, or at once if it was.

        Nothing is called when the holder itself gives up what it held.
        """
        with self._lock:
            if self._announced.is_set():
                self._run([callback])
            else:
                self._callbacks.append(callback)

    def join_callbacks(self) -> None:
        """Wait until every callback of a loss that happened has ended; not from within one."""
        if self._is_lost():
            self._announced.wait()
        with self._lock:
            threads = list(self._threads)
        if threading.current_thread() not in threads:
            for thread in threads:
                thread.join()

    def announce(self) -> None:
        """Wake everybody who waits and run the callbacks; the second time does nothing."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
            if callbacks:
                self._run(callbacks)
            self._announced.set()

    def retire(self) -> None:
        """The holder gave it up: wake everybody who waits, call nobody."""
        with self._lock:
            self._announced.set()
            self._callbacks = []

    def _run(self, callbacks: list[Callable[[], None]]) -> None:
        # Never on a thread that renews or watches: a callback may block.
        thread = threading.Thread(
            target=_call, args=(callbacks,), name="pliska-lock-lost", daemon=True
        )
        self._threads.append(thread)
        thread.start()


def _call(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception:  # noqa: BLE001 - the caller's code; the other callbacks still run
            _log.exception("an on_lost callback failed")
