"""kazoo's connection, changed where its behaviour would break a lease or a deadline.

kazoo has no seam for what is needed here, so this subclasses its connection
handler, which connects, authenticates, keeps alive and begins again; what is
asked on a connection that is open goes through a `Channel`. This is the one
file that knows kazoo's insides. Called by `zookeeper_link`, which has the
deadlines.
"""

import contextlib
import logging
import socket
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionClosedRequireSaslError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from pliska.locks.backends.zookeeper_answer import Answer
from pliska.locks.backends.zookeeper_channel import Channel
from pliska.locks.backends.zookeeper_client import connect_timeout_s
from pliska.locks.backends.zookeeper_requests import Close

CLOSE_GRACE_S = 0.5
WAKES_MAX = 64

_log = logging.getLogger(__name__)


class Purpose(Enum):
    """What a connection is for."""

    RECORDS = auto()
    """Reads, watches and changes: reconnects for ever and keeps itself alive."""
    SESSION = auto()
    """A lease: only `renew` keeps it alive, and it ends with its session."""


class Events(Protocol):
    """Who is told what the connection's thread sees. No method may block."""

    def on_reply(self, zxid: int) -> None:
        """A reply came; the server had applied `zxid`."""

    def on_event(self, path: str) -> None:
        """A watched node changed."""

    def on_disconnect(self) -> None:
        """The connection is gone, and its watches with it."""


class Connection(ConnectionHandler):  # type: ignore[misc] # kazoo has no types
    """The handler of one client's connection; its loop runs in a thread of kazoo's.

    Attributes:
        negotiated_s: The session timeout that the server granted.
        last_failure: Why the last attempt to connect failed; empty after a success.
        is_credential_refused: Whether the servers refused the credential; kazoo
            then connects no more.
    """

    def __init__(
        self,
        client: KazooClient,
        purpose: Purpose,
        events: Events | None,
        on_open: Callable[[], None],
    ) -> None:
        """Take the place of `client`'s own handler; call `on_open` when requests may be sent."""
        given = client._connection
        super().__init__(client, given.retry_sleeper, client.logger, given.sasl_options)
        client._connection = self
        self._purpose = purpose
        self._events = events
        self._on_open = on_open
        self._socket: Any = None
        """First kazoo's socket, and then the channel, which kazoo's loop waits for and closes."""
        self._channel: Channel | None = None
        self.negotiated_s: float = client._session_timeout / 1000
        self.last_failure = ""
        self.is_credential_refused = False

    @property
    def session_id(self) -> str:
        """The session's id, as servers print it; zeros before the first connection."""
        return f"{(self.client._session_id or 0) & (2**64 - 1):016x}"

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent."""
        return self._channel is not None

    def submit(self, *answers: Answer) -> None:
        """Send requests now, together and in this order, from the caller's thread.

        Without a connection they are never sent, and have failed.
        """
        channel = self._channel
        if channel is None:
            for answer in answers:
                answer.fail(ConnectionLoss())
        elif not channel.submit(*answers):
            self._wake()

    def wait(self, answer: Answer, timeout_s: float) -> bool:
        """Whether an answer has come in time, or it is known that there will be none."""
        channel = self._channel
        if channel is None:
            return answer.wait(timeout_s)
        return channel.wait(answer, timeout_s)

    def lose(self, error: Exception) -> None:
        """The connection is gone: let those who wait for answers know."""
        if isinstance(error, AuthFailedError):
            self.is_credential_refused = True
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.fail(error)

    def stay_disconnected(self) -> None:
        """Begin no further session after one that has ended."""
        self.client._stopped.set()

    def cut(self) -> None:
        """Break the connection, so that kazoo looks for another server."""
        connection = self._socket
        if isinstance(connection, Channel):
            connection.break_off()
        elif connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def end_session(self, timeout_s: float) -> bool:
        """Close the session, and stop as `leave` does once the server knows or the time is over.

        kazoo's own `stop` waits ten seconds and then without limit when the
        server is frozen.

        Returns:
            Whether the server confirmed it.
        """
        self.client._stopped.set()
        closed = Answer(Close())
        self.submit(closed)
        is_answered = self.wait(closed, max(0.0, timeout_s)) and closed.is_delivered
        self.leave()
        return is_answered

    def leave(self) -> None:
        """Free the connection and its threads; the session is left to run out."""
        self.client._stopped.set()
        if not self.connection_stopped.is_set():
            self.cut()
            self._wake()
        if self.connection_stopped.wait(CLOSE_GRACE_S):
            self._connection_routine.join(CLOSE_GRACE_S)
            self.close()
            self.client.handler.stop()
        else:
            _log.warning("a connection to ZooKeeper takes its time to end")

    def _wake(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self._write_sock.send(b"\0")

    def _connect_attempt(self, host: str, hostip: str, port: int, retry: KazooRetry) -> object:
        try:
            return super()._connect_attempt(host, hostip, port, retry)
        except Exception as error:  # noqa: BLE001 - or the thread would end, and nobody reconnect
            self.last_failure = f"{host}:{port}: {type(error).__name__}: {error}"
            _log.warning("unexpected answer from ZooKeeper: reason=%s", self.last_failure)
            if self.client._state != KeeperState.CONNECTING:
                self.client._session_callback(KeeperState.CONNECTING)
            return None

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        try:
            read_timeout, connect_timeout = super()._connect(host, hostip, port)
        except SessionClosedRequireSaslError as error:  # kazoo would try again for ever
            raise AuthFailedError("the server wants SASL and refuses what it was shown") from error
        except Exception as error:
            self.last_failure = f"{host}:{port}: {str(error) or type(error).__name__}"
            raise
        self.last_failure = ""
        self.negotiated_s = read_timeout * 1.5 / 1000  # kazoo made two thirds of it
        self._socket = self._channel = Channel(self._socket, self)
        self._on_open()
        return read_timeout, connect_timeout

    def _invoke(self, timeout: float, request: object, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            # A short lease does not make the server's disk any faster.
            timeout = connect_timeout_s(timeout)
        return super()._invoke(timeout, request, xid)

    def _read_socket(self, read_timeout: float) -> None:  # noqa: ARG002 - kazoo's signature
        self._socket.take_in()

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:  # noqa: ARG002
        """Send what the socket did not take from a caller, who woke kazoo's loop for it."""
        self._read_sock.recv(WAKES_MAX)
        self._write(b"", connect_timeout)

    def _send_ping(self, connect_timeout: float) -> None:
        self._socket.attend()
        if self._purpose is Purpose.RECORDS:
            super()._send_ping(connect_timeout)

    def _write(self, msg: bytes, timeout: float) -> None:
        if not isinstance(self._socket, Channel):
            super()._write(msg, timeout)
            return
        is_all_sent = self._socket.send(msg)
        while not is_all_sent:
            self._socket.wait_until_writable(timeout)
            is_all_sent = self._socket.flush()

    def on_answer(self, zxid: int) -> None:
        """See `Listener`."""
        self.client.last_zxid = zxid
        if self._events is not None:
            self._events.on_reply(zxid)

    def on_event(self, path: str) -> None:
        """See `Listener`."""
        if self._events is not None:
            self._events.on_event(path)

    def on_ping(self) -> None:
        """See `Listener`."""
        self.ping_outstanding.clear()
