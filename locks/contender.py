"""The shared way to wait for one's turn: ordered contender records.

Whoever wants a lock, a lease or leadership adds an ephemeral record below one
directory. A rule (see `turn`) says who is inside; every other waits for the
nearest one in its way. The revision that created the record is the fencing
token: it only grows, and so does the order of holders. The recipes are this
plus what they say about it.
"""

import math
import threading
import uuid

from pliska.locks.backends.base import (
    CALL_TIMEOUT_S,
    Existing,
    Listing,
    Record,
    Revision,
    Update,
)
from pliska.locks.claim import Claim
from pliska.locks.errors import (
    AcquireCancelledError,
    AcquireTimeoutError,
    ConflictError,
    GrantLostError,
    LockUsageError,
    NotHeldError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from pliska.locks.fencing import FencingToken
from pliska.locks.loss import LossSignal
from pliska.locks.session import Session
from pliska.locks.turn import Act, Enter, Rule, Turn, Wait

WAIT_SLICE_S = 0.5
"""A waiter looks this often whether it was called off or its session ended."""
UNAVAILABLE_PAUSE_S = 0.1
STORE_CALL_S_MIN = 0.25
"""What a store call gets even when the caller's time is nearly over."""
RELEASE_TIMEOUT_S = 2.0


class Contender:
    """One place in a queue, from the wish to the release. Safe to use from any thread."""

    def __init__(self, session: Session, directory: str, value: bytes, rule: Rule) -> None:
        """Choose a unique key; nothing is in the store yet."""
        self.session = session
        self.key = f"{directory}/{uuid.uuid4().hex}"
        self._directory = directory
        self._value = value
        self._rule = rule
        self._record: Record | None = None
        self._lock = threading.Lock()
        self._levels = 0
        self._loss_reason: str | None = None
        self.lost = LossSignal(lambda: self._levels > 0 and self._lost_because() is not None)

    @property
    def value(self) -> bytes:
        """What its record says, or is to say."""
        return self._value

    @property
    def created(self) -> Revision:
        """The revision that put this contender into the queue."""
        if self._record is None:
            raise NotHeldError(f"{self.key!r} was never in the queue")
        return self._record.created

    @property
    def token(self) -> FencingToken:
        """The fencing token of what this contender holds."""
        return FencingToken(self.created)

    @property
    def guard(self) -> Existing:
        """The check that makes a transaction fail unless this contender still holds."""
        return Existing(self.key, self.created)

    @property
    def is_holding(self) -> bool:
        """Whether it holds, by the local deadline of the session. Once False, it stays so."""
        return self._levels > 0 and self._lost_because() is None

    def acquire(self, until_s: float | None, cancelled: threading.Event | None) -> None:
        """Queue up and wait until it is its turn.

        Whatever interrupts this, the record does not stay behind.

        Raises:
            AcquireTimeoutError: `until_s` on the session's clock passed.
            AcquireCancelledError: `cancelled` was set.
            SessionLostError: The session ended, or the record was removed.
            StoreError: The record could not be added.
        """
        try:
            queue = self._enter(until_s)
            self._wait_for_turn(queue, until_s, cancelled)
            self._hold()
        except BaseException:
            self._withdraw()
            raise

    def try_acquire(self) -> bool:
        """Queue up, and leave again when it is not its turn at once."""
        try:
            queue = self._enter(None)
            turn, _ = self._turn(queue, CALL_TIMEOUT_S)
            if isinstance(turn, Enter) and self._make(turn, CALL_TIMEOUT_S):
                self._hold()
                return True
        except BaseException:
            self._withdraw()
            raise
        self._withdraw()
        return False

    def hold_again(self) -> bool:
        """Add a level to what it holds; False when it does not hold any more."""
        with self._lock:
            if not self.is_holding:
                return False
            self._levels += 1
            return True

    def release(self) -> bool:
        """Take a level away, and leave the queue with the last one.

        Returns:
            False when it was not held any more.
        """
        with self._lock:
            if not self.is_holding:
                return False
            self._levels -= 1
            is_last = self._levels == 0
        if not is_last:
            return True
        self.session.release(self)
        self.lost.retire()
        return self.session.delete_own(self.key, RELEASE_TIMEOUT_S)

    def weaken(self, claim: Claim) -> None:
        """Replace what its record says by a claim that is in fewer others' way.

        Whoever may go beside it now comes in; nobody who must not.

        Raises:
            LockUsageError: It is held at several levels, and only one of them is known to agree.
            GrantLostError: It was lost.
            OutcomeUnknownError: It may have happened; asking again is safe.
        """
        with self._lock:
            self.check()
            if self._levels > 1:
                raise LockUsageError(
                    f"{self._directory!r} is held {self._levels} times: release inner ones first"
                )
            self._value = claim.to_bytes()
        try:
            self.session.backend.transact([self.guard], [Update(self.key, self._value)])
        except ConflictError as error:
            self.lose("its record was removed from the store")
            raise GrantLostError(f"{self._directory!r} is no longer held: {error}") from error

    def lose(self, reason: str) -> None:
        """See `session.Held`."""
        with self._lock:
            if self._levels == 0:
                return
            self._loss_reason = self._loss_reason or reason
        self.lost.announce()

    def check(self) -> None:
        """Raise unless it holds: `GrantLostError`, or `NotHeldError` after a release."""
        reason = self._lost_because()
        if self._levels == 0:
            raise NotHeldError(f"{self._directory!r} was released before")
        if reason is not None:
            raise GrantLostError(f"{self._directory!r} is no longer held: {reason}")

    def _lost_because(self) -> str | None:
        if self._loss_reason is not None:
            return self._loss_reason
        return None if self.session.is_alive else "its session has ended"

    def _enter(self, until_s: float | None) -> Listing | None:
        """Add the record; the queue with it, if the store could tell."""
        self.session.check()
        self._record, queue = self.session.backend.create_and_list(
            self.key, self._value, self.session.backend_session, self._call_timeout_s(until_s)
        )
        return queue

    def _wait_for_turn(
        self, queue: Listing | None, until_s: float | None, cancelled: threading.Event | None
    ) -> None:
        while True:
            self._check_called_off(cancelled)
            seen, queue = queue, None
            try:
                turn, revision = self._turn(seen, self._call_timeout_s(until_s))
                if isinstance(turn, Wait):
                    queue = self._wait_and_list(turn.path, revision, until_s, cancelled)
                elif not self._make(turn, self._call_timeout_s(until_s)):
                    self._check_time(until_s)
                elif isinstance(turn, Enter):
                    return
            except (StoreUnavailableError, OutcomeUnknownError):
                # Our place in the queue is worth more than a hiccup of the store.
                self._check_time(until_s)
                self.session.lost.wait(UNAVAILABLE_PAUSE_S)

    def _wait_and_list(
        self,
        path: str,
        revision: Revision,
        until_s: float | None,
        cancelled: threading.Event | None,
    ) -> Listing:
        """The queue once `path` has changed."""
        queue = None
        while queue is None:
            left_s = self._check_time(until_s)
            queue = self.session.backend.wait_and_list(
                path, revision, self._directory, min(left_s, WAIT_SLICE_S)
            )
            self._check_called_off(cancelled)
        return queue

    def _turn(self, seen: Listing | None, timeout_s: float) -> tuple[Turn, Revision]:
        """What the rule says, and the revision of the queue it looked at: `seen`, or now."""
        listing = seen or self.session.backend.list(self._directory, timeout_s)
        while any(record.modified > listing.revision for record in listing.records):
            # Some stores read the names first and the records after: one has changed in between.
            listing = self.session.backend.list(self._directory, timeout_s)
        for position, record in enumerate(listing.records):
            if record.key == self.key and record.created == self.created:
                return self._rule(listing.records, position), listing.revision
        self.session.check()
        raise GrantLostError(f"{self.key!r} was removed from the queue")

    def _make(self, turn: Act | Enter, timeout_s: float) -> bool:
        """Make the changes that the rule asks for; False when they came too late."""
        if not turn.changes:
            return True
        try:
            self.session.backend.transact([self.guard, *turn.checks], turn.changes, timeout_s)
        except ConflictError:
            return False
        return True

    def _check_called_off(self, cancelled: threading.Event | None) -> None:
        self.session.check()
        if cancelled is not None and cancelled.is_set():
            raise AcquireCancelledError(f"the wait for {self._directory!r} was called off")

    def _check_time(self, until_s: float | None) -> float:
        """The time left to wait."""
        if until_s is None:
            return math.inf
        left_s = until_s - self.session.clock.now_s()
        if left_s <= 0:
            raise AcquireTimeoutError(f"{self._directory!r} did not come free in time")
        return left_s

    def _hold(self) -> None:
        # From here on the keeper watches the record and the guard the deadline.
        with self._lock:
            self._levels = 1
        self.session.hold(self)

    def _withdraw(self) -> None:
        with self._lock:
            self._levels = 0
        self.session.release(self)
        self.session.delete_own(self.key, STORE_CALL_S_MIN)

    def _call_timeout_s(self, until_s: float | None) -> float:
        if until_s is None:
            return CALL_TIMEOUT_S
        left_s = until_s - self.session.clock.now_s()
        return min(CALL_TIMEOUT_S, max(STORE_CALL_S_MIN, left_s))


def deadline_of(session: Session, timeout_s: float | None) -> float | None:
    """The moment on the session's clock when `timeout_s` will have passed."""
    return None if timeout_s is None else session.clock.now_s() + timeout_s
