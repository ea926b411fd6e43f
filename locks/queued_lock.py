"""What the locks with a queue have in common: acquire, try and hold.

`Mutex`, both sides of `ReadWriteLock`, and `Semaphore` are each a claim, a
rule for whose turn it is, and this. Nothing here is a lock by itself.
"""

import threading

from pliska.locks.claim import Claim
from pliska.locks.contender import Contender, deadline_of
from pliska.locks.grant import Grant
from pliska.locks.name import check_name
from pliska.locks.owner import Holdings
from pliska.locks.session import Session
from pliska.locks.turn import Enter, Rule

QUEUE = "contenders"
"""The directory, below a lock's name, of those who hold it or wait for it."""


class QueuedLock:
    """A lock that is granted in the order in which it was asked for."""

    def __init__(
        self, session: Session, name: str, directory: str, claim: Claim, rule: Rule
    ) -> None:
        """Name the lock; nothing happens in the store yet.

        Raises:
            LockUsageError: The name is not allowed.
        """
        check_name(name)
        self.name = name
        self._session = session
        self._directory = directory
        self._value = claim.to_bytes()
        self._rule = rule

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
        contender = self._contender()
        contender.acquire(deadline_of(self._session, timeout_s), cancelled)
        return self._granted(contender)

    def try_acquire(self) -> Grant | None:
        """Take the lock if nobody is in the way or waits before us; None otherwise, at once."""
        self._session.check()
        records = self._session.backend.list(self._directory).records
        if not isinstance(self._rule(records, len(records)), Enter):
            return None
        contender = self._contender()
        return self._granted(contender) if contender.try_acquire() else None

    def hold(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Grant:
        """`acquire` for a with statement: `with lock.hold(timeout_s=5) as grant`."""
        return self.acquire(timeout_s, cancelled)

    def _contender(self) -> Contender:
        return Contender(self._session, self._directory, self._value, self._rule)

    def _granted(self, contender: Contender) -> Grant:
        return Grant(contender)


class ReentrantLock(QueuedLock):
    """A queued lock that its owner, a thread or a task, may acquire again.

    n acquires need n releases, and a loss voids all levels.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        directory: str,
        claim: Claim,
        rule: Rule,
        holdings: Holdings,
    ) -> None:
        """See `QueuedLock`; locks that share `holdings` are one lock to its owners."""
        super().__init__(session, name, directory, claim, rule)
        self._holdings = holdings

    def acquire(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Grant:
        """See `QueuedLock.acquire`; at once when the caller holds it already."""
        return self._again() or super().acquire(timeout_s, cancelled)

    def try_acquire(self) -> Grant | None:
        """See `QueuedLock.try_acquire`; also when the caller holds it already."""
        return self._again() or super().try_acquire()

    def _again(self) -> Grant | None:
        self._session.check()
        held = self._holdings.mine()
        return Grant(held) if held is not None and held.hold_again() else None

    def _granted(self, contender: Contender) -> Grant:
        self._holdings.add(contender)
        return super()._granted(contender)


def queue_directory(name: str) -> str:
    """Where those who hold or wait for the lock called `name` have their records."""
    return f"locks/{name}/{QUEUE}"
