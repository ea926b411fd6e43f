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
import struct
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import CLOSE_RESPONSE, PING_XID, WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import CloseInstance, Connect, ReplyHeader, Watch
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from pliska.locks.backends.zookeeper_options import ZookeeperOptions
from pliska.locks.backends.zookeeper_requests import Answered, Request

CONNECT_TIMEOUT_S_MIN = 0.5
CONNECT_TIMEOUT_S_MAX = 3.0
"""How long one server has to take a connection and to answer its first request."""
RECONNECT_PAUSE_S = 0.05
RECONNECT_PAUSE_S_MAX = 1.0
CLOSE_GRACE_S = 0.5
RECEIVE_BYTES_MAX = 256 * 1024
FRAME_BYTES_MAX = 64 * 1024 * 1024
"""More than the records that are read in one request may have together."""
WAKES_MAX = 64
XID_MAX = 2**31 - 1

_Length = struct.Struct(">i")
_RequestHeader = struct.Struct(">iii")  # length, xid, type
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

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


class Answer:
    """The answer to one request, for the one who waits for it.

    Attributes:
        request: What was asked.
        was_sent: Whether the server may have got the request.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.was_sent = False
        self._has_come = threading.Event()
        self._came: Answered | Exception = ConnectionLoss()

    def set_exception(self, error: Exception) -> None:
        """There will be none; kazoo calls this when the connection is lost."""
        self._came = error
        self._has_come.set()

    def deliver(self, answered: Answered) -> None:
        """It has come."""
        self._came = answered
        self._has_come.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether it came in time, or it is known that there will be none."""
        return self._has_come.wait(timeout_s)

    def take(self, timeout_s: float) -> object:
        """Wait for it and read it, here rather than in the connection's thread.

        Raises:
            TimeoutError: It did not come in time.
            Exception: One of kazoo's, or what comes of an answer that cannot be read.
        """
        if not self.wait(timeout_s):
            raise TimeoutError
        if isinstance(self._came, Answered):
            return self.request.read(self._came)
        raise self._came


class Connection(ConnectionHandler):  # type: ignore[misc] # kazoo has no types
    """The handler of one client's connection; its loop runs in a thread of kazoo's.

    Attributes:
        is_open: Whether requests may be sent.
        negotiated_s: The session timeout that the server granted.
        last_failure: Why the last attempt to connect failed; empty after a success.
        is_close_acknowledged: Whether the server confirmed the end of the session.
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
        self._sending = threading.Lock()
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._xid = 0
        self.is_open = False
        self.negotiated_s: float = client._session_timeout / 1000
        self.last_failure = ""
        self.is_close_acknowledged = False

    @property
    def session_id(self) -> str:
        """The session's id, as servers print it; zeros before the first connection."""
        return f"{(self.client._session_id or 0) & (2**64 - 1):016x}"

    @property
    def is_credential_refused(self) -> bool:
        """Whether the servers refused the credential; kazoo then connects no more."""
        return bool(self.client._state == KeeperState.AUTH_FAILED)

    def submit(self, *answers: Answer) -> None:
        """Send requests now, together and in this order, from the caller's thread.

        kazoo's own thread would have to be woken for it. Without a connection
        they are never sent, and have failed.
        """
        bodies = [answer.request.serialize() for answer in answers]
        with self._sending:
            if not self.is_open:
                for answer in answers:
                    answer.set_exception(ConnectionLoss())
                return
            for answer, body in zip(answers, bodies, strict=True):
                self._xid = (self._xid % XID_MAX) + 1
                self.client._pending.append((answer.request, answer, self._xid))
                answer.was_sent = True
                header = _RequestHeader.pack(len(body) + 8, self._xid, answer.request.type)
                self._outgoing += header + body
            is_all_sent = self._send_outgoing()
        if not is_all_sent:
            self._wake()

    def refuse(self) -> None:
        """Send no further requests on this connection: it is gone, or about to be."""
        with self._sending:
            self.is_open = False

    def stay_disconnected(self) -> None:
        """Begin no further session after one that has ended."""
        self.client._stopped.set()

    def cut(self) -> None:
        """Break the connection, so that kazoo looks for another server."""
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def end_session(self, timeout_s: float) -> None:
        """Close the session, and stop as `leave` does once the server knows or the time is over.

        kazoo's own `stop` waits ten seconds and then without limit when the
        server is frozen.
        """
        self.client._stopped.set()
        self.refuse()
        self.client._queue.append((CloseInstance, None))
        self._wake()
        self.connection_stopped.wait(max(0.0, timeout_s))
        self.leave()

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
        self._incoming.clear()
        self._outgoing.clear()
        try:
            read_timeout, connect_timeout = super()._connect(host, hostip, port)
        except Exception as error:
            self.last_failure = f"{host}:{port}: {str(error) or type(error).__name__}"
            raise
        self.last_failure = ""
        self.negotiated_s = read_timeout * 1.5 / 1000  # kazoo made two thirds of it
        self.is_open = True  # and not before: the server knows who we are by now
        self._on_open()
        return read_timeout, connect_timeout

    def _invoke(self, timeout: float, request: object, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            # A short lease does not make the server's disk any faster.
            timeout = _connect_timeout_s(timeout)
        return super()._invoke(timeout, request, xid)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Something woke kazoo's loop: the end of the session, or who could not send all."""
        if self.client._queue:
            super()._send_request(read_timeout, connect_timeout)
        else:
            self._read_sock.recv(WAKES_MAX)
            self._write(b"", connect_timeout)

    def _send_ping(self, connect_timeout: float) -> None:
        if self._purpose is Purpose.RECORDS:
            super()._send_ping(connect_timeout)

    def _write(self, msg: bytes, timeout: float) -> None:
        with self._sending:
            self._outgoing += msg
        while not self._is_all_sent():
            if not self.handler.select([], [self._socket], [], timeout)[1]:
                raise self.handler.timeout_exception("the server takes no more")

    def _is_all_sent(self) -> bool:
        with self._sending:
            return self._send_outgoing()

    def _send_outgoing(self) -> bool:
        """Send what the socket takes; False when some is left. Under `_sending`."""
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except _WOULD_BLOCK:
            return False
        except OSError:
            self.cut()  # whoever reads hears of it
        return True

    def _read_socket(self, read_timeout: float) -> object:  # noqa: ARG002 - kazoo's signature
        """Take in what has come, by one system call, and handle each answer and event in it."""
        self._receive()
        response: object = None
        while response != CLOSE_RESPONSE and (frame := self._next_frame()) is not None:
            response = self._handle(frame)
        return response

    def _receive(self) -> None:
        with self._sending, self._socket_error_handling():  # TLS is one object for both ways
            is_more_there = True
            while is_more_there:
                try:
                    received = self._socket.recv(RECEIVE_BYTES_MAX)
                except _WOULD_BLOCK:
                    return
                if not received:
                    raise ConnectionDropped("the server closed the connection")
                self._incoming += received
                # TLS may hold more than it says to the kernel.
                is_more_there = (
                    isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
                )

    def _next_frame(self) -> bytes | None:
        """The next whole answer or event of those taken in, without its length."""
        if len(self._incoming) < _Length.size:
            return None
        (length,) = _Length.unpack_from(self._incoming)
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise ConnectionDropped(f"a frame of {length} bytes is none of ZooKeeper's")
        end = _Length.size + length
        if len(self._incoming) < end:
            return None
        frame = bytes(self._incoming[_Length.size : end])
        del self._incoming[:end]
        return frame

    def _handle(self, frame: bytes) -> object:
        header, offset = ReplyHeader.deserialize(frame, 0)
        if header.xid == PING_XID:
            self.ping_outstanding.clear()
        elif header.xid == WATCH_XID:
            event, _ = Watch.deserialize(frame, offset)
            if self._events is not None:
                self._events.on_event(event.path)
        else:
            return self._handle_answer(Answered(header.zxid, header.err, frame, offset), header.xid)
        return None

    def _handle_answer(self, answered: Answered, xid: int) -> object:
        request, answer, expected_xid = self.client._pending.popleft()
        if answered.zxid > 0:
            self.client.last_zxid = answered.zxid
            if self._events is not None:
                self._events.on_reply(answered.zxid)
        if request is CloseInstance:
            self.is_close_acknowledged = True
            return CLOSE_RESPONSE
        if xid == expected_xid:
            answer.deliver(answered)
            return None
        answer.set_exception(ConnectionLoss())
        raise ConnectionDropped("the server answered out of turn")


class _Client(KazooClient):  # type: ignore[misc] # kazoo has no types
    """Tells its connection when it is gone, before it tells those who wait for answers."""

    def _session_callback(self, state: str) -> None:
        if state != KeeperState.CONNECTED:
            self._connection.refuse()
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
