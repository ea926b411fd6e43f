"""HTTP/1.1 to a Consul agent, each request over by its deadline whatever the agent does.

py-consul's own transport gives no way to bound one call, shares ten
connections among all threads, so that waiting ones starve the others, and
follows proxy settings of the environment. This one opens a connection for
each request in flight and keeps idle ones for the next.
"""

import contextlib
import http.client
import io
import select
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from pliska.locks.backends.consul_place import ConsulPlace
from pliska.locks.errors import OutcomeUnknownError, StoreUnavailableError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

IDLE_CONNECTIONS_MAX = 64
LOOK_BYTES = 65536
ANSWER_BYTES_MAX = 64 * 1024 * 1024
TIMEOUT_S_MIN = 0.001


class Answer(NamedTuple):
    """What the agent answered; the names are those that py-consul expects."""

    code: int
    headers: http.client.HTTPMessage
    body: str


class Connections:
    """Connections to one agent. Safe to use from any thread."""

    def __init__(self, place: ConsulPlace) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._is_closed = False

    def request(self, method: str, target: str, body: bytes, timeout_s: float) -> Answer:
        """Send one request and read its answer.

        Args:
            method: GET, PUT or DELETE.
            target: Path and query, percent-encoded.
            body: What to send; empty for none.
            timeout_s: For everything: to connect, to send and to read.

        Raises:
            StoreUnavailableError: The request did not reach the agent, or the
                answer to a GET was lost.
            OutcomeUnknownError: The answer to another method was lost.
        """
        until_s = time.monotonic() + timeout_s
        return self.begin(method, target, body, timeout_s).answer(until_s - time.monotonic())

    def begin(self, method: str, target: str, body: bytes, timeout_s: float) -> "Exchange":
        """Send one request, and leave it to the caller when to read its answer.

        Args, Raises:
            See `request`.
        """
        until_s = time.monotonic() + timeout_s
        connection = self._take(until_s)
        try:
            self._send(connection, method, target, body, until_s)
        except BaseException:
            self.discard(connection)
            raise
        return Exchange(self, connection, method)

    def close(self) -> None:
        """Close the idle connections and end the requests in flight."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        for connection in busy:
            connection.abort()

    def _take(self, until_s: float) -> "_Connection":
        with self._lock:
            self._check_open()
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_stale():
                    self._busy.add(connection)
                    return connection
                connection.close()
        connection = self._opened(until_s)
        with self._lock:
            if not self._is_closed:
                self._busy.add(connection)
                return connection
        connection.close()
        raise self._closed_error()

    def _opened(self, until_s: float) -> "_Connection":
        place = self._place
        try:
            return _Connection(place, until_s)
        except (OSError, UnicodeError) as error:
            raise StoreUnavailableError(
                f"Consul at {place.host}:{place.port} cannot be reached: {error}"
            ) from error

    def _send(
        self, connection: "_Connection", method: str, target: str, body: bytes, until_s: float
    ) -> None:
        place = self._place
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {place.host}:{place.port}",
            f"Content-Length: {len(body)}",
        ]
        if place.token is not None:
            lines.append(f"X-Consul-Token: {place.token.value}")
        head = "\r\n".join([*lines, "", ""]).encode("ascii")
        try:
            connection.send(head + body, until_s)
        except OSError as error:
            # Without its end the agent does not act on a request.
            self._check_open()
            raise StoreUnavailableError(
                f"Consul at {place.host}:{place.port} did not take the request: {error}"
            ) from error

    def receive(self, connection: "_Connection", method: str, until_s: float) -> Answer:
        """Read the answer to the request that was sent on a connection."""
        try:
            return connection.receive(method, until_s)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._check_open()
            text = (
                f"Consul at {self._place.host}:{self._place.port} did not answer: "
                f"{str(error) or type(error).__name__}"
            )
            if method == "GET":
                raise StoreUnavailableError(text) from error
            raise OutcomeUnknownError(text) from error

    def give_back(self, connection: "_Connection") -> None:
        """Keep a connection for the next request, if it can be."""
        with self._lock:
            self._busy.discard(connection)
            if (
                connection.is_reusable
                and not self._is_closed
                and len(self._idle) < IDLE_CONNECTIONS_MAX
            ):
                self._idle.append(connection)
                return
        connection.close()

    def discard(self, connection: "_Connection") -> None:
        """Close a connection that failed, and what it makes doubtful."""
        with self._lock:
            self._busy.discard(connection)
            # A path that swallows packets spares no connection of the same age.
            idle, self._idle = self._idle, []
        for each in (connection, *idle):
            each.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed_error()

    def _closed_error(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"the backend {self._place.address} is closed: connect again")


class Exchange:
    """A request that was sent. For one thread; it ends with `answer` or `abandon`."""

    def __init__(self, connections: Connections, connection: "_Connection", method: str) -> None:
        self._connections = connections
        self._connection = connection
        self._method = method

    def fileno(self) -> int:
        """What becomes readable when the answer arrives."""
        return self._connection.fileno()

    def is_answered(self) -> bool:
        """Whether an answer, or the end of the connection, has arrived; never waits.

        TLS has things of its own to say, which are no answer.
        """
        return self._connection.look()

    def answer(self, timeout_s: float) -> Answer:
        """Read the answer. Raises what `Connections.request` does."""
        try:
            until_s = time.monotonic() + timeout_s
            answer = self._connections.receive(self._connection, self._method, until_s)
        except BaseException:
            self._connections.discard(self._connection)
            raise
        self._connections.give_back(self._connection)
        return answer

    def abandon(self) -> None:
        """Close the connection: nobody wants the answer any more."""
        self._connection.is_reusable = False
        self._connections.give_back(self._connection)


class _Connection:
    """One socket, used by one request at a time."""

    def __init__(self, place: ConsulPlace, until_s: float) -> None:
        self.is_reusable = True
        opened = socket.create_connection((place.host, place.port), _left_s(until_s))
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if place.tls is not None:
                opened.settimeout(_left_s(until_s))
                opened = place.tls.wrap_socket(opened, server_hostname=place.server_name)
        except BaseException:
            opened.close()
            raise
        self._socket = opened
        self._looked_at = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def look(self) -> bool:
        self._socket.setblocking(False)
        try:
            self._looked_at += self._socket.recv(LOOK_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            pass  # whoever reads the answer meets it again
        return True

    def is_stale(self) -> bool:
        """Whether the agent closed it, or sent what nobody asked for, while it was idle."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, data: bytes, until_s: float) -> None:
        self._socket.settimeout(_left_s(until_s))
        self._socket.sendall(data)

    def receive(self, method: str, until_s: float) -> Answer:
        begin, self._looked_at = self._looked_at, b""
        readable = _Readable(self._socket, begin, until_s)
        response = http.client.HTTPResponse(readable, method=method)  # type: ignore[arg-type]
        with contextlib.closing(response):
            response.begin()
            body = response.read(ANSWER_BYTES_MAX + 1)
            if len(body) > ANSWER_BYTES_MAX:
                raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
            if response.length:
                raise ValueError("the answer was cut short")
            self.is_reusable = not response.will_close
            return Answer(response.status, response.headers, body.decode())

    def abort(self) -> None:
        """Make another thread's request on it fail."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class _Readable:
    """A socket as `http.client` reads it, each piece within what is left of the time."""

    def __init__(self, connected: socket.socket, begin: bytes, until_s: float) -> None:
        self._stream = _Stream(connected, begin, until_s)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._stream)


class _Stream(io.RawIOBase):
    def __init__(self, connected: socket.socket, begin: bytes, until_s: float) -> None:
        self._socket = connected
        self._begin = begin
        self._until_s = until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if self._begin:
            space = memoryview(buffer).cast("B")
            count = min(len(space), len(self._begin))
            space[:count], self._begin = self._begin[:count], self._begin[count:]
            return count
        self._socket.settimeout(_left_s(self._until_s))
        return self._socket.recv_into(buffer)


def _left_s(until_s: float) -> float:
    """The time left as a socket's timeout; an overdue one still fails rather than blocks."""
    return max(TIMEOUT_S_MIN, until_s - time.monotonic())
