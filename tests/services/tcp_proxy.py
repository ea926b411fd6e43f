"""A TCP proxy that treats bytes as a bad network does: lost, late, cut, refused.

It knows no protocol. `proxy` knows ZooKeeper's and acts on a chosen request.
"""

import contextlib
import socket
import struct
import threading
import time
from typing import Self

CHUNK_BYTES = 65536
CUT_DELAY_S = 0.01


class TcpProxy:
    """Listens on a port of its own, `host_port`, and passes on to `upstream`, a host:port.

    Attributes:
        delay_s: How late each chunk is passed on, in either direction.
        cut_after_bytes: How many more bytes pass, from clients, before every
            connection is reset and new ones are refused; None for no end.
    """

    def __init__(self, upstream: str, own_address: str = "127.0.0.1") -> None:
        host, _, port = upstream.rpartition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server((own_address, 0))
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_open = threading.Event()
        self._is_open.set()
        self._refuses = False
        self.delay_s = 0.0
        self.cut_after_bytes: int | None = None
        self.host_port = f"{own_address}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="test-tcp-proxy", daemon=True).start()

    def blackhole(self) -> None:
        """Let nothing pass and keep every connection open, as a cable that is pulled."""
        self._is_open.clear()

    def refuse(self) -> None:
        """Reset every connection, and each new one."""
        self._refuses = True
        self.reset_all()

    def heal(self) -> None:
        """Let everything pass again; what was held back arrives late, as after TCP's retries."""
        self._refuses = False
        self.delay_s, self.cut_after_bytes = 0.0, None
        self._is_open.set()

    def reset_all(self) -> None:
        """Reset every connection that is open now."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            _reset(connection)

    def close(self) -> None:
        """Listen no more and reset every connection."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._is_open.set()
        self.reset_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                _reset(client)
                continue
            try:
                server = socket.create_connection(self._upstream)
            except OSError:
                _reset(client)
                continue
            with self._lock:
                self._connections |= {client, server}
            for source, target, counts in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._pass_on,
                    args=(source, target, counts),
                    name="test-tcp-proxy",
                    daemon=True,
                ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._is_open.wait()
                time.sleep(self.delay_s)
                target.sendall(self._counted(data) if counts else data)
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        with self._lock:
            self._connections -= {source, target}

    def _counted(self, data: bytes) -> bytes:
        with self._lock:
            if self.cut_after_bytes is None:
                return data
            passed = data[: self.cut_after_bytes]
            self.cut_after_bytes -= len(passed)
            is_over = self.cut_after_bytes == 0
        if is_over:
            self._refuses = True
            # A little later, so that what has passed arrives.
            threading.Timer(CUT_DELAY_S, self.reset_all).start()
        return passed


def _reset(connection: socket.socket) -> None:
    """Close with RST rather than FIN, and wake whoever reads from it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
    connection.close()
