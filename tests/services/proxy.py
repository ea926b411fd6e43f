"""A TCP proxy between a client and a server: it counts, delays, swallows and cuts.

It knows the frames of ZooKeeper's protocol (a length and that many bytes), so
that a test can act on a chosen request. Each connection has two threads.
"""

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import Self

FRAME_BYTES_MAX = 4 * 1024 * 1024
PING = 11
GET_DATA = 4
READ_MANY = 22
CHANGES = frozenset({1, 2, 5, 14, 15, 19})
"""Numbers of ZooKeeper's requests; those that change records: create, delete, set data, multi,
create with an answer that says when, create a container."""


class Action(Enum):
    """What happens to a request."""

    PASS = auto()
    SWALLOW = auto()
    """The server never gets it, and the connection stays open."""
    CUT_BEFORE = auto()
    """The server never gets it, and the connection breaks."""
    CUT_AFTER = auto()
    """The server gets it, and the connection breaks before its answer can pass."""


class ZookeeperProxy:
    """Listens on a port of its own; `host_port` is its address."""

    def __init__(self, upstream: str) -> None:
        """Start to pass connections on to `upstream`, a host:port."""
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.host_port = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: Counter[int] = Counter()
        self.decide: Callable[[int], Action] = lambda _kind: Action.PASS
        self._start(self._accept)

    def cut_all(self) -> None:
        """Break every connection that is open now."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            _break(connection)

    def close(self) -> None:
        """Listen no more and break every connection."""
        _break(self._listener)
        self.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
            except OSError:
                return
            with self._lock:
                self._connections |= {client, server}
            self._start(self._pass_requests, client, server)
            self._start(self._pass_answers, server, client)

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            server.sendall(_frame(client))  # the handshake has no number
            while True:
                frame = _frame(client)
                kind = struct.unpack_from(">i", frame, 8)[0]
                self.requests[kind] += 1
                action = self.decide(kind)
                if action is Action.CUT_AFTER:
                    _break(client)
                if action in (Action.PASS, Action.CUT_AFTER):
                    server.sendall(frame)
                if action is Action.CUT_BEFORE:
                    break
        _break(client)
        _break(server)

    def _pass_answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _break(client)
        _break(server)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        threading.Thread(target=target, args=arguments, name="test-proxy", daemon=True).start()


def _frame(connection: socket.socket) -> bytes:
    header = _exactly(connection, 4)
    (length,) = struct.unpack(">i", header)
    if not 0 <= length <= FRAME_BYTES_MAX:
        raise OSError("not a frame of ZooKeeper's")
    return header + _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise OSError("the connection ended")
        data += more
    return data


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
