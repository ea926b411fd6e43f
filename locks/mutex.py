"""Mutual exclusion between threads, processes and, where the store allows, machines."""

import threading
import weakref

from pliska.locks.contender import Contender, deadline_of
from pliska.locks.grant import Grant
from pliska.locks.name import check_name
from pliska.locks.session import Session


class Mutex:
    """A fair lock: whoever came first gets it first.

    Re-entrant for each thread that uses the same `Mutex` object: n acquires
    need n releases, and a loss voids all levels. Other threads, and other
    objects of the same name, wait.
    """

    def __init__(self, session: Session, name: str) -> None:
        """Name the lock; nothing happens in the store yet.

        Raises:
            LockUsageError: The name is not allowed.
        """
        check_name(name)
        self.name = name
        self._session = session
        self._directory = f"locks/{name}/contenders"
        self._lock = threading.Lock()
        self._by_owner: weakref.WeakKeyDictionary[threading.Thread, Contender] = (
            weakref.WeakKeyDictionary()
        )

    def acquire(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Grant:
        """Wait for the lock.

        Args:
            timeout_s: How long to wait; None waits for as long as the session lives.
            cancelled: Set it from another thread to call the wait off.

        Raises:
            AcquireTimeoutError: It did not come free in time.
            AcquireCancelledError: `cancelled` was set.
            SessionLostError: The session ended.
            StoreError: The store could not take the wish.
        """
        self._session.check()
        again = self._hold_again()
        if again is not None:
            return again
        contender = self._contender()
        contender.acquire(deadline_of(self._session, timeout_s), cancelled)
        return self._granted(contender)

    def try_acquire(self) -> Grant | None:
        """Take the lock if nobody holds it or waits for it; None otherwise, without waiting."""
        self._session.check()
        again = self._hold_again()
        if again is not None:
            return again
        if self._session.backend.list(self._directory).records:
            return None
        contender = self._contender()
        return self._granted(contender) if contender.try_acquire() else None

    def hold(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Grant:
        """`acquire` for a with statement: `with mutex.hold(timeout_s=5) as grant`."""
        return self.acquire(timeout_s, cancelled)

    def _contender(self) -> Contender:
        return Contender(self._session, self._directory, b"")

    def _hold_again(self) -> Grant | None:
        with self._lock:
            contender = self._by_owner.get(threading.current_thread())
        if contender is None or not contender.hold_again():
            return None
        return Grant(contender)

    def _granted(self, contender: Contender) -> Grant:
        with self._lock:
            self._by_owner[threading.current_thread()] = contender
        return Grant(contender)
