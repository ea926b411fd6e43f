"""A lock that Consul's own clients respect: `consul lock`, and its Go package.

They know a lock by one key and hold it for a session; whoever is quickest gets
it. Here the wishes queue first, as everywhere in Pliska, and only the first in
line tries the key. So we are fair among ourselves, and exclude and are
excluded by the others.
"""

import contextlib
import threading

from pliska.locks.backends.base import CALL_TIMEOUT_S, Existing, Record, Revision
from pliska.locks.backends.key_locks import KeyLockBackend, KeyLocks
from pliska.locks.claim import Claim, this_process
from pliska.locks.contender import UNAVAILABLE_PAUSE_S, WAIT_SLICE_S, deadline_of
from pliska.locks.errors import (
    AcquireCancelledError,
    AcquireTimeoutError,
    ConflictError,
    GrantLostError,
    LockUsageError,
    StoreUnavailableError,
)
from pliska.locks.fencing import FencingToken
from pliska.locks.grant import Grant
from pliska.locks.loss import LossSignal
from pliska.locks.queued_lock import QueuedLock, queue_directory
from pliska.locks.session import Session
from pliska.locks.turn import exclusive

UNLOCK_TIMEOUT_S = 2.0


class ConsulLock:
    """The lock that Consul's clients know under a key.

    `consul lock app …` means the key `app/.lock`. Tokens order our holders
    among each other and with the index at which any other client took the key.
    Not re-entrant.
    """

    def __init__(self, session: Session, key: str) -> None:
        """Name the lock; nothing happens in the store yet.

        Args:
            session: Whose end frees the lock.
            key: Below the prefix of the store's address.

        Raises:
            LockUsageError: The store is not Consul, or the key is not allowed.
        """
        if not isinstance(session.backend, KeyLockBackend):
            raise LockUsageError(f"{session.backend.address} is no Consul: use Mutex there")
        self.key = key
        self._key_locks = session.backend.key_locks
        self._session = session
        claim = Claim(this_process())
        self._queue = QueuedLock(session, key, queue_directory(key), claim, exclusive)

    def acquire(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Grant:
        """Wait for the lock. Arguments and errors as `Mutex.acquire`.

        Raises:
            LockUsageError: Besides, when the key is there and is no lock.
        """
        until_s = deadline_of(self._session, timeout_s)
        ticket = self._queue.acquire(timeout_s, cancelled)
        holding = _KeyHolding(self._session, self._key_locks, self.key, ticket)
        try:
            while True:
                with contextlib.suppress(StoreUnavailableError):
                    if holding.begin():
                        return Grant(holding)
                holding.wait(until_s, cancelled)
        except BaseException:
            holding.release()
            raise

    def try_acquire(self) -> Grant | None:
        """Take the lock if nobody holds it or waits for it; None otherwise, without waiting."""
        ticket = self._queue.try_acquire()
        if ticket is None:
            return None
        holding = _KeyHolding(self._session, self._key_locks, self.key, ticket)
        try:
            if holding.begin():
                return Grant(holding)
        except BaseException:
            holding.release()
            raise
        holding.release()
        return None

    def hold(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Grant:
        """`acquire` for a with statement: `with lock.hold(timeout_s=5) as grant`."""
        return self.acquire(timeout_s, cancelled)


class _KeyHolding:
    """The key, held or about to be, under a place at the head of the queue."""

    def __init__(self, session: Session, key_locks: KeyLocks, key: str, ticket: Grant) -> None:
        self.session = session
        self.key = key
        self._key_locks = key_locks
        self._ticket = ticket
        self._record: Record | None = None
        self._loss_reason: str | None = None
        self._is_released = False
        self.lost = LossSignal(lambda: self._record is not None and not self.is_holding)

    @property
    def created(self) -> Revision:
        """When it took the key."""
        return self.guard.created

    @property
    def token(self) -> FencingToken:
        return FencingToken(self.created)

    @property
    def guard(self) -> Existing:
        if self._record is None:
            raise GrantLostError(f"{self.key!r} was not held yet")
        return Existing(self.key, self._record.created)

    @property
    def is_holding(self) -> bool:
        return self._record is not None and self._lost_because() is None and not self._is_released

    def begin(self) -> bool:
        """Take the key; False when somebody else has it, or had it until a moment ago."""
        self._ticket.check()
        try:
            self._record = self._key_locks.lock(
                self.key, this_process().encode(), self.session.backend_session, CALL_TIMEOUT_S
            )
        except ConflictError:
            return False
        self.session.hold(self)
        return True

    def wait(self, until_s: float | None, cancelled: threading.Event | None) -> None:
        """Wait until taking the key may be worth another try."""
        if cancelled is not None and cancelled.is_set():
            raise AcquireCancelledError(f"the wait for {self.key!r} was called off")
        left_s = WAIT_SLICE_S if until_s is None else until_s - self.session.clock.now_s()
        if left_s <= 0:
            raise AcquireTimeoutError(f"{self.key!r} did not come free in time")
        slice_s = min(left_s, WAIT_SLICE_S)
        try:
            record = self.session.backend.get(self.key, slice_s)
            if record is not None and record.session_id is not None:
                self.session.backend.wait_for_change(self.key, record.modified, slice_s)
                return
        except StoreUnavailableError:
            pass  # as when it is free and not yet for us, below
        self.session.lost.wait(UNAVAILABLE_PAUSE_S)

    def check(self) -> None:
        reason = self._lost_because()
        if reason is not None:
            raise GrantLostError(f"{self.key!r} is no longer held: {reason}")

    def lose(self, reason: str) -> None:
        """See `session.Held`."""
        self._loss_reason = self._loss_reason or reason
        self.lost.announce()

    def release(self) -> bool:
        was_held = self.is_holding
        self._is_released = True
        self.session.release(self)
        self.lost.retire()
        # Even after a loss, or a lost answer: no more than what the session holds is freed.
        self.session.give_back(
            lambda timeout_s: self._key_locks.unlock(
                self.key, self.session.backend_session, timeout_s
            ),
            UNLOCK_TIMEOUT_S,
        )
        self._ticket.release()
        return was_held

    def _lost_because(self) -> str | None:
        if self._loss_reason is not None:
            return self._loss_reason
        return None if self._ticket.held else "its session has ended"
