"""One connection to ZooKeeper with the deadlines that kazoo does not keep.

Nothing waits in kazoo's queue: a call made while there is no connection waits
here, and whatever it waits for, it ends at its own deadline. A request is sent
at once or never, so its caller knows that nothing was applied; one that was
sent and not answered has an unknown outcome.

Knows nothing of records. Used by the ZooKeeper backend, its sessions and its
watcher.
"""

import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import AuthFailedError, SessionExpiredError
from kazoo.protocol.states import KazooState

from pliska.locks.backends.zookeeper_answer import Answer
from pliska.locks.backends.zookeeper_client import kazoo_client
from pliska.locks.backends.zookeeper_connection import Connection, Events, Purpose
from pliska.locks.backends.zookeeper_failures import failure_of
from pliska.locks.backends.zookeeper_options import ZookeeperOptions
from pliska.locks.backends.zookeeper_requests import (
    One,
    Operation,
    ReadMany,
    Reply,
    Request,
    Sync,
    Transaction,
)
from pliska.locks.clock import SystemClock
from pliska.locks.errors import (
    LockError,
    OutcomeUnknownError,
    SessionLostError,
    StoreUnavailableError,
)

_log = logging.getLogger(__name__)

READS_BEHIND_MAX = 50
"""How often a server that lags behind, by milliseconds, is asked before it is believed."""


class ZookeeperLink:
    """A connection that reconnects, until it is closed. Safe to use from any thread."""

    def __init__(
        self,
        options: ZookeeperOptions,
        session_timeout_s: float,
        purpose: Purpose,
        events: Events | None = None,
    ) -> None:
        """Prepare and begin to connect.

        Args:
            options: Servers and credentials.
            session_timeout_s: How long the server shall wait for a sign of life.
            purpose: What the link is for.
            events: Told of replies and watches, if anybody is.
        """
        self.client = kazoo_client(options, session_timeout_s)
        self._options = options
        self._purpose = purpose
        self._events = events
        self._clock = SystemClock()
        self._changed = threading.Condition()
        self._is_closed = False
        self._has_ended = False
        self._is_close_confirmed = False
        self._connection = Connection(self.client, purpose, events, self._notify)
        self.client.add_listener(self._on_state)
        self.client.start_async()

    @property
    def session_id(self) -> str:
        """The session's id, as servers print it."""
        return self._connection.session_id

    @property
    def session_timeout_s(self) -> float:
        """What the server granted."""
        return self._connection.negotiated_s

    @property
    def last_zxid(self) -> int:
        """The newest transaction that this connection has heard of."""
        return int(self.client.last_zxid)

    def wait_until_connected(self, until_s: float) -> None:
        """Wait for the connection.

        Raises:
            StoreUnavailableError: There was none in time, or the link is closed.
            SessionLostError: The session has ended; only with `Purpose.SESSION`.
            AccessDeniedError: The servers refuse the credential.
        """
        if self._connection.is_open and self.is_usable:
            return
        with self._changed:
            while True:
                self._check_usable()
                if self._connection.is_open:
                    return
                left_s = until_s - self._clock.now_s()
                if left_s <= 0:
                    raise StoreUnavailableError(
                        f"no connection to ZooKeeper at {self._options.hosts} in time"
                        f"{self._because()}"
                    )
                self._changed.wait(left_s)

    def read(self, operations: Sequence[Operation], until_s: float, since: int = 0) -> Reply:
        """Read, at one moment, what was acknowledged to anybody before this call.

        Args:
            operations: What.
            until_s: When to give up.
            since: A zxid that the caller knows of. The server that leads the others may apply a
                transaction after one that follows has acknowledged it, and knows of nothing to
                wait for at a `sync`; it is asked again, a few times, until it has caught up.

        Raises:
            The errors of `wait_until_connected`.
        """
        asked = 0
        while True:
            asked += 1
            # On one connection the server answers in order: the read sees what the sync brought.
            synced, read = Answer(Sync(self._options.root or "/")), Answer(ReadMany(operations))
            self._send(until_s, synced, read)
            try:
                reply: Reply = self.wait(read, until_s)
                caught_up: int = self.wait(synced, until_s)
            except StoreUnavailableError:
                if synced.is_delivered:
                    self.wait(synced, until_s)  # it may say why there was nothing more
                if self._is_closed or self._clock.now_s() >= until_s:
                    raise
            else:
                if caught_up >= since or asked == READS_BEHIND_MAX:
                    return reply

    def read_on(self, operations: Sequence[Operation], until_s: float) -> Reply:
        """Read, at one moment, at least what a read of this link saw before.

        It saves the sync: a connection goes to no server that is behind the one before.

        Raises:
            The errors of `wait_until_connected`.
        """
        while True:
            try:
                return self.ask(ReadMany(operations), until_s)  # type: ignore[no-any-return]
            except StoreUnavailableError:
                if self._is_closed or self._clock.now_s() >= until_s:
                    raise

    def transact(self, operations: Sequence[Operation], until_s: float) -> Reply:
        """Apply all or nothing; an exception among the results says that it was nothing.

        Raises:
            OutcomeUnknownError: It was sent, and no answer came.
            The errors of `wait_until_connected`: nothing was applied.
        """
        changed = Answer(_change(operations))
        self._send(until_s, changed)
        return self._outcome(changed, until_s)

    def transact_and_read(
        self, operations: Sequence[Operation], reads: Sequence[Operation], until_s: float
    ) -> tuple[Reply, Reply | None]:
        """`transact`, and read what is there then or later, in one exchange.

        The server answers in order, so the read needs no sync: it sees the
        transaction, which came after all that was acknowledged before this call.

        Returns:
            Both answers; the second is None when it was lost.

        Raises:
            The errors of `transact`.
        """
        changed, read = Answer(_change(operations)), Answer(ReadMany(reads))
        self._send(until_s, changed, read)
        seen: Reply | None = None
        with contextlib.suppress(LockError):  # the transaction's answer says what happened
            seen = self.wait(read, until_s)  # the later one first: that is one wake-up for both
        return self._outcome(changed, until_s), seen

    def ask(self, request: Request, until_s: float) -> Any:
        """Send one request that changes no record, and wait for its answer.

        Raises:
            The errors of `wait_until_connected`, also when no answer came in time.
        """
        answer = Answer(request)
        self._send(until_s, answer)
        return self.wait(answer, until_s)

    def submit(self, answer: Answer) -> None:
        """Send a request at once, or never when there is no connection. Does not block."""
        self._connection.submit(answer)

    def wait(self, answer: Answer, until_s: float) -> Any:
        """Wait for the answer to a request that was submitted, and read it.

        Raises:
            The errors of `wait_until_connected`, also when no answer came in time.
        """
        if not self.has_come(answer, until_s):
            raise StoreUnavailableError(
                f"ZooKeeper at {self._options.hosts} did not answer in time"
            )
        try:
            return answer.read()
        except Exception as error:
            raise self.failure(error) from error

    def has_come(self, answer: Answer, until_s: float) -> bool:
        """Wait for an answer; whether it came in time, or it is known that there will be none."""
        return self._connection.wait(answer, max(0.0, until_s - self._clock.now_s()))

    def cut_connection(self) -> None:
        """Break the connection, so that another server is tried."""
        self._connection.cut()

    def close(self, timeout_s: float) -> bool:
        """End the session and free the connection; harmless when that was done.

        Returns:
            Whether the session is over: the server confirmed it, or had ended it before.
        """
        until_s = self._clock.now_s() + timeout_s
        if self._purpose is Purpose.SESSION:  # what it holds is worth waiting for
            with contextlib.suppress(LockError):
                self.wait_until_connected(until_s)
        if self._take_down():
            self._is_close_confirmed = self._connection.end_session(until_s - self._clock.now_s())
        return self._has_ended or self._is_close_confirmed

    def leave(self) -> None:
        """Free the connection; the session is left to run out."""
        if self._take_down():
            self._connection.leave()

    @property
    def is_usable(self) -> bool:
        """Whether it is neither closed nor over with its session."""
        return not self._is_closed and not self._has_ended

    def _take_down(self) -> bool:
        """Refuse further calls; False when they were refused before."""
        with self._changed:
            was_closed, self._is_closed = self._is_closed, True
            self._changed.notify_all()
        return not was_closed

    def failure(self, error: object) -> LockError:
        """Say what an error of kazoo's means on this connection."""
        if isinstance(error, SessionExpiredError) and self._purpose is Purpose.SESSION:
            return self._session_lost()
        return failure_of(error, self._options)

    def _outcome(self, changed: Answer, until_s: float) -> Reply:
        """The answer to a transaction."""
        try:
            reply: Reply = self.wait(changed, until_s)
        except StoreUnavailableError as error:
            if not changed.was_sent:
                raise
            raise OutcomeUnknownError(
                f"ZooKeeper at {self._options.hosts} was sent a change and the answer was lost: "
                "read before trying again"
            ) from error
        return reply

    def _send(self, until_s: float, *answers: Answer) -> None:
        self.wait_until_connected(until_s)
        self._connection.submit(*answers)

    def _because(self) -> str:
        return f": {self._connection.last_failure}" if self._connection.last_failure else ""

    def _check_usable(self) -> None:
        if self._is_closed:
            raise StoreUnavailableError("this client of ZooKeeper is closed: connect again")
        if self._connection.is_credential_refused:
            raise self.failure(AuthFailedError())
        if self._has_ended:
            raise self._session_lost()

    def _session_lost(self) -> SessionLostError:
        return SessionLostError("ZooKeeper has ended the session: open a new one")

    def _on_state(self, state: str) -> None:
        if state == KazooState.SUSPENDED and not self._is_closed:
            _log.warning("connection to ZooKeeper lost: servers=%s", self._options.hosts)
        if state == KazooState.LOST and self._purpose is Purpose.SESSION:
            self._has_ended = True
            self._connection.stay_disconnected()
        if state != KazooState.CONNECTED and self._events is not None:
            self._events.on_disconnect()
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _change(operations: Sequence[Operation]) -> Request:
    """All or nothing; one operation by itself is that already, and costs the server less."""
    return One(operations[0]) if len(operations) == 1 else Transaction(operations)
