"""kazoo's connection, changed where its behaviour would break a lease or a deadline.

kazoo has no seam for what is needed here, so this subclasses its connection
handler: it is the one file that knows kazoo's insides. Called by
`zookeeper_link`, which has the deadlines.
"""

import contextlib
import logging
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from pliska.locks.backends.zookeeper_channel import Answer, Channel
from pliska.locks.backends.zookeeper_options import ZookeeperOptions
from pliska.locks.backends.zookeeper_requests import Close

CONNECT_TIMEOUT_S_MIN = 0.5
CONNECT_TIMEOUT_S_MAX = 3.0
"""How long one server has to take a connection and to answer its first request."""
RECONNECT_PAUSE_S = 0.05
RECONNECT_PAUSE_S_MAX = 1.0
CLOSE_GRACE_S = 0.5
WAKES_MAX = 64

_LOSSES = {
    KeeperState.AUTH_FAILED: AuthFailedError,
    KeeperState.EXPIRED_SESSION: SessionExpiredError,
}
_log = logging.getLogger(__name__)
# kazoo's debug messages show credentials, and what it warns of the link says in fewer words.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)


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
        super().__init__(client, given.retry_sleeper, _kazoo_log, given.sasl_options)
        client._connection = self
        self._purpose = purpose
        self._events = events
        self._on_open = on_open
        self._socket: Any = None
        """First kazoo's socket, and then the channel, which kazoo's loop waits for and closes."""
        self._channel: Channel | None = None
        self.negotiated_s: float = client._session_timeout / 1000
        self.last_failure = ""

    @property
    def session_id(self) -> str:
        """The session's id, as servers print it; zeros before the first connection."""
        return f"{(self.client._session_id or 0) & (2**64 - 1):016x}"

    @property
    def is_credential_refused(self) -> bool:
        """Whether the servers refused the credential; kazoo then connects no more."""
        return bool(self.client._state == KeeperState.AUTH_FAILED)

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
            timeout = _connect_timeout_s(timeout)
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


class _Client(KazooClient):  # type: ignore[misc] # kazoo has no types
    """Tells its connection when it is gone, before it tells anybody else."""

    def _session_callback(self, state: str) -> None:
        if state != KeeperState.CONNECTED:
            self._connection.lose(_LOSSES.get(state, ConnectionLoss)())
        super()._session_callback(state)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Opens connections and waits for them, without a leak for each failure of TLS."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls

    def select(
        self,
        reading: Sequence[socket.socket],
        writing: Sequence[socket.socket],
        _failing: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """Wait for sockets by one system call; kazoo's own way takes five, for each request."""
        poll = select.poll()
        for each in reading:
            poll.register(each, select.POLLIN)
        for each in writing:
            poll.register(each, select.POLLOUT)
        ready = {number for number, _ in poll.poll(None if timeout is None else timeout * 1000)}
        readable = [each for each in reading if each.fileno() in ready]
        writable = [each for each in writing if each.fileno() in ready]
        return readable, writable, []

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> socket.socket:
        """Open one, in less than a session's time so that some is left for other servers."""
        connection = socket.create_connection(address, _connect_timeout_s(timeout))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return connection
            return self._tls.wrap_socket(connection, server_hostname=hostname)
        except BaseException:
            connection.close()
            raise


def kazoo_client(options: ZookeeperOptions, session_timeout_s: float) -> KazooClient:
    """Make a client that is not started yet."""
    handler = _Handler(options.tls)
    retry = KazooRetry(
        max_tries=-1,
        delay=RECONNECT_PAUSE_S,
        backoff=2,
        max_delay=RECONNECT_PAUSE_S_MAX,
        sleep_func=handler.sleep_func,
    )
    digest = [] if options.digest is None else [("digest", options.digest.secret)]
    return _Client(
        hosts=options.hosts,
        timeout=session_timeout_s,
        handler=handler,
        auth_data=digest,
        sasl_options=_sasl_options(options),
        connection_retry=retry,
        logger=_kazoo_log,
    )


def _connect_timeout_s(session_timeout_s: float) -> float:
    return min(CONNECT_TIMEOUT_S_MAX, max(CONNECT_TIMEOUT_S_MIN, session_timeout_s / 3))


def _sasl_options(options: ZookeeperOptions) -> dict[str, str] | None:
    if options.sasl_mechanism is None:
        return None
    if options.sasl is None:
        return {"mechanism": options.sasl_mechanism}
    user, password = options.sasl.user_and_password
    return {"mechanism": options.sasl_mechanism, "username": user, "password": password}
