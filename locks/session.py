"""A lease kept alive, and the one place that answers "am I still alive?".

Locks, leaderships and registrations borrow a session; when it ends they end.
Whether it lives is computed from a local deadline each time somebody asks.
Two threads serve it: the guard only watches the deadline, so that a hung store
cannot delay the news; the keeper talks to the store.
"""

import logging
import threading
from collections.abc import Callable
from typing import Protocol, Self

from pliska.locks.backends.base import CALL_TIMEOUT_S, Backend, Guarantee, Revision
from pliska.locks.clock import Clock, SystemClock
from pliska.locks.closing import Closing
from pliska.locks.errors import LockError, LockUsageError, SessionLostError, StoreError
from pliska.locks.lease import LEASE_S_MAX, LEASE_S_MIN, Lease
from pliska.locks.loss import LossSignal
from pliska.locks.process import HomeProcess

INSPECTION_S = 0.5
"""How often the keeper looks whether the records of held grants still exist, and gives back what
an interrupted acquire or release left behind."""
CLOSE_TIMEOUT_S = 2.0
RENEWAL_TIMEOUT_S_MIN = 0.05

_log = logging.getLogger(__name__)


class Held(Protocol):
    """Something that the session's owner holds by a record of its own."""

    @property
    def key(self) -> str:
        """The record whose existence is the holding."""

    @property
    def created(self) -> Revision:
        """The revision that created it."""

    def lose(self, reason: str) -> None:
        """The record is gone, or the session is."""


class Session(Closing):
    """A session in a coordination store. Make one with `open`. Safe to use from any thread."""

    def __init__(self, backend: Backend, lease_s: float, clock: Clock) -> None:
        """Use `open`, which checks the lease."""
        self.backend = backend
        self.clock = clock
        self._home = HomeProcess()
        sent_s = clock.now_s()
        self.backend_session = backend.open_session(lease_s)
        self._lease = Lease.begun(self.backend_session.lease_s, sent_s)
        self._changed = threading.Condition()
        self._end_reason: str | None = None
        self._is_closed = False
        self._held: dict[Held, Revision | None] = {}
        """What is held, and the revision at which its record was last seen."""
        self._abandoned: set[Callable[[float], bool]] = set()
        self._lost = LossSignal(lambda: not self.is_alive)
        self._threads = [
            threading.Thread(target=self._watch_deadline, name="pliska-session-guard", daemon=True),
            threading.Thread(target=self._keep, name="pliska-session-keeper", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def open(cls, backend: Backend, lease_s: float = 10.0, clock: Clock | None = None) -> Self:
        """Begin a session and keep it alive until `close`.

        Args:
            backend: The store.
            lease_s: How long the store waits for a sign of life, at least
                `LEASE_S_MIN` and at most `LEASE_S_MAX`. Renewed at a third of it.
            clock: Where the time comes from; `SystemClock` unless a test moves it.

        Raises:
            LockUsageError: The lease is out of range.
            StoreError: The store did not begin the session.
        """
        if not LEASE_S_MIN <= lease_s <= LEASE_S_MAX:
            raise LockUsageError(
                f"a lease lasts {LEASE_S_MIN} to {LEASE_S_MAX} seconds, not {lease_s}"
            )
        return cls(backend, lease_s, clock or SystemClock())

    @property
    def id(self) -> str:
        """Name of the session in the store."""
        self._home.check()
        return self.backend_session.id

    @property
    def lease_s(self) -> float:
        """The lease that the store granted."""
        return self._lease.length_s

    @property
    def is_alive(self) -> bool:
        """Whether the lease, as far as we know it, still runs. Once False, it stays so."""
        return self._ended() is None

    @property
    def remaining_s(self) -> float:
        """How long the session lives if no further renewal succeeds; 0 once it has ended."""
        with self._changed:
            if self._ended() is not None:
                return 0.0
            return max(0.0, self._lease.deadline_s - self.clock.now_s())

    @property
    def lost(self) -> LossSignal:
        """Set when the session has ended, for whatever reason."""
        self._home.check()
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` in a thread of its own when the session is lost, but not on `close`."""
        self._home.check()
        self._lost.on_lost(callback)

    def check(self) -> None:
        """Raise `SessionLostError` when the session has ended."""
        reason = self._ended()
        if reason is not None:
            raise SessionLostError(f"session {self.backend_session.id} has ended: {reason}")

    def close(self) -> None:
        """End the session: everything it holds is free at once. Harmless when it has ended."""
        self._home.check()
        with self._changed:
            was_closed, self._is_closed = self._is_closed, True
        self._end("it was closed")
        if was_closed:
            return
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(CLOSE_TIMEOUT_S)
        self._close_in_store()

    def hold(self, held: Held) -> None:
        """Watch over the record of something held, until `release`.

        Raises:
            SessionLostError: The session has ended meanwhile.
        """
        with self._changed:
            self.check()
            self._held[held] = None

    def release(self, held: Held) -> None:
        """Watch no longer; its owner gives it up."""
        with self._changed:
            self._held.pop(held, None)

    def delete_own(self, key: str, timeout_s: float) -> bool:
        """Delete a record of this session; True when it was there. See `give_back`."""
        return self.give_back(lambda left_s: self.backend.delete(key, timeout_s=left_s), timeout_s)

    def give_back(self, action: Callable[[float], bool], timeout_s: float) -> bool:
        """Do away with something of this session's; what `action` says of it.

        When the store does not answer, or the caller is interrupted, the keeper
        goes on trying for as long as the session lives, and True is returned.

        Args:
            action: Takes the time it may take; harmless to do again.
            timeout_s: How long the caller waits for it.

        Returns:
            False when there was nothing to give back, or the session has ended.
        """
        if not self.is_alive:
            return False
        try:
            return action(timeout_s)
        except SessionLostError:
            return False  # and all that it held went with it
        except StoreError as error:
            _log.warning("something held could not be given back yet: reason=%s", error)
            self._abandon(action)
            return True
        except BaseException:
            self._abandon(action)
            raise

    def _ended(self) -> str | None:
        """Why the session has ended; None while it lives. What was lost once stays lost."""
        self._home.check()
        if self._end_reason is None and self.clock.now_s() < self._lease.deadline_s:
            return None
        with self._changed:
            if self._end_reason is None and self.clock.now_s() >= self._lease.deadline_s:
                self._end_reason = (
                    f"no renewal was acknowledged within its lease of {self._lease.length_s:g} s"
                )
                self._changed.notify_all()
            return self._end_reason

    def _abandon(self, action: Callable[[float], bool]) -> None:
        with self._changed:
            self._abandoned.add(action)

    def _end(self, reason: str) -> None:
        with self._changed:
            if self._ended() is None:
                self._end_reason = reason
            self._changed.notify_all()

    def _watch_deadline(self) -> None:
        with self._changed:
            while self._ended() is None:
                self.clock.wait(self._changed, self._lease.deadline_s)
            held, self._held = self._held, {}
            reason, is_closed = self._end_reason or "", self._is_closed
        for each in held:
            each.lose(reason)
        if is_closed:
            self._lost.retire()
        else:
            _log.warning("session lost: session=%s reason=%s", self.backend_session.id, reason)
            self._lost.announce()

    def _keep(self) -> None:
        next_inspection_s = self.clock.now_s()
        while self._sleep_until_due(next_inspection_s):
            if self.clock.now_s() >= self._lease.next_renewal_s:
                self._renew()
            if self.clock.now_s() >= next_inspection_s:
                self._give_back_abandoned()
                self._inspect_held()
                next_inspection_s = self.clock.now_s() + INSPECTION_S
        if not self._is_closed:
            # A renewal may have got through too late for us to count on.
            self._close_in_store()

    def _sleep_until_due(self, next_inspection_s: float) -> bool:
        """Wait for the next duty; False when the session has ended."""
        with self._changed:
            while self._ended() is None:
                due_s = min(self._lease.next_renewal_s, next_inspection_s)
                if self.clock.now_s() >= due_s:
                    return True
                self.clock.wait(self._changed, due_s)
        return False

    def _renew(self) -> None:
        sent_s = self.clock.now_s()
        timeout_s = max(RENEWAL_TIMEOUT_S_MIN, self._lease.deadline_s - sent_s)
        try:
            self.backend_session.renew(min(CALL_TIMEOUT_S, timeout_s))
        except SessionLostError:
            self._end("the store ended it")
        except LockError as error:
            _log.warning("renewal failed: session=%s reason=%s", self.backend_session.id, error)
            with self._changed:
                self._lease = self._lease.failed(sent_s)
        else:
            with self._changed:
                if self._ended() is None:
                    self._lease = self._lease.renewed(sent_s)

    def _give_back_abandoned(self) -> None:
        with self._changed:
            abandoned = list(self._abandoned)
        for action in abandoned:
            try:
                action(self._call_timeout_s())
            except LockError:
                return  # the next round tries again
            with self._changed:
                self._abandoned.discard(action)

    def _inspect_held(self) -> None:
        with self._changed:
            held = list(self._held.items())
        for each, seen in held:
            try:
                if seen is not None and self._is_unchanged(each.key, seen):
                    continue
                record = self.backend.get(each.key, timeout_s=self._call_timeout_s())
            except LockError:
                return  # unreachable: the guard sees to it
            if record is None or record.created != each.created:
                self.release(each)
                each.lose("its record was removed from the store")
                continue
            with self._changed:
                if each in self._held:
                    self._held[each] = record.modified

    def _is_unchanged(self, key: str, since: Revision) -> bool:
        """Whether the store's word is that a record is as it was; False where it must be asked."""
        return (
            Guarantee.LASTING_WATCHES in self.backend.guarantees
            and not self.backend.wait_for_change(key, since, 0.0)
        )

    def _call_timeout_s(self) -> float:
        """Short enough that a slow call does not cost the next renewal."""
        return max(RENEWAL_TIMEOUT_S_MIN, self.lease_s / 6)

    def _close_in_store(self) -> None:
        try:
            self.backend_session.close(CLOSE_TIMEOUT_S)
        except LockError as error:
            _log.warning(
                "a session was left to run out: session=%s reason=%s",
                self.backend_session.id,
                error,
            )
