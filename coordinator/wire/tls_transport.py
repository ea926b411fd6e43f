"""TLS on one accepted connection, with no memory of its own while nothing moves.

What asyncio makes by itself passes every byte through two buffers in memory,
which grow to the largest piece that ever passed and stay so until the
connection ends. Here TLS works on the socket: what has arrived waits there, in
the system's memory, until it is read, and what is to be sent is kept by
reference. Not for clients. Called by `http_server` only.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable

from pliska.coordinator.wire.limits import READ_BUFFER_BYTES, WRITE_BUFFER_BYTES
from pliska.coordinator.wire.transport import Buffer

RECORD_BYTES = 16 * 1024
"""The most that one TLS record holds (RFC 8446, section 5.1)."""
LINGER_S = 1.0
"""How long a closed connection waits while its peer takes nothing of the last reply, or has all
of it and does not leave."""


async def secure(
    connection: socket.socket, context: ssl.SSLContext, timeout_s: float
) -> ssl.SSLSocket:
    """Shake hands with a client that has just connected.

    Args:
        connection: Belongs to the result afterwards, and is closed if there is none.
        context: From `tls.server_context`.
        timeout_s: How long the whole handshake may take.

    Raises:
        OSError: It was not done in time, the client left, or (`ssl.SSLError`) it speaks no
            such TLS.
    """
    connection.setblocking(False)
    secured = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    secured.do_handshake()
                except ssl.SSLWantReadError:
                    await _readiness(secured, loop.add_reader, loop.remove_reader)
                except ssl.SSLWantWriteError:
                    await _readiness(secured, loop.add_writer, loop.remove_writer)
                else:
                    return secured
    except BaseException:
        secured.close()
        raise


async def _readiness(
    secured: ssl.SSLSocket,
    watch: Callable[..., object],
    unwatch: Callable[[ssl.SSLSocket], object],
) -> None:
    is_ready = asyncio.Event()
    watch(secured, is_ready.set)
    try:
        await is_ready.wait()
    finally:
        unwatch(secured)


class TlsTransport(asyncio.Transport):
    """Carries the bytes of one protocol over a secured socket, from its making on.

    `write` keeps what it is given until it is sent, so that must not change.
    """

    __slots__ = (
        "_connection",
        "_is_closing",
        "_is_lost",
        "_is_reader_held",
        "_is_watching_reads",
        "_is_writer_held",
        "_lingering",
        "_loop",
        "_protocol",
        "_unsent",
        "_unsent_bytes",
    )

    def __init__(self, connection: ssl.SSLSocket, protocol: asyncio.Protocol) -> None:
        """Begin to read, and tell the protocol.

        Args:
            connection: From `secure`.
            protocol: Belongs to this connection alone.
        """
        super().__init__(
            {
                "socket": connection,
                "peername": connection.getpeername(),
                "sslcontext": connection.context,
            }
        )
        self._connection = connection
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._unsent: list[memoryview] = []  # a few; an empty deque takes 700 bytes
        self._unsent_bytes = 0
        self._is_reader_held = False
        self._is_writer_held = False
        self._is_watching_reads = False
        self._is_closing = False
        self._is_lost = False
        self._lingering: asyncio.TimerHandle | None = None
        protocol.connection_made(self)
        self._watch_reads()

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that it was made for."""
        return self._protocol

    def is_closing(self) -> bool:
        """Whether nothing more is taken in to be sent."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Whether the protocol gets what arrives."""
        return not (self._is_reader_held or self._is_closing)

    def pause_reading(self) -> None:
        """Leave what arrives in the system's memory, until its sender has to wait."""
        self._is_reader_held = True  # and `_read` stops watching, unless it is let go before that

    def resume_reading(self) -> None:
        """Go on reading."""
        self._is_reader_held = False
        self._watch_reads()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._unsent_bytes

    def write(self, data: Buffer) -> None:
        """Send bytes, or keep them until the peer takes them."""
        self.writelines((data,))

    def writelines(self, pieces: Iterable[Buffer]) -> None:
        """Send several buffers, one behind the other."""
        if self._is_closing:
            return
        is_waiting = bool(self._unsent)
        for piece in pieces:
            if len(piece):
                self._unsent.append(memoryview(piece).cast("B"))
                self._unsent_bytes += len(self._unsent[-1])
        if not is_waiting:
            self._send()
        if self._unsent_bytes > WRITE_BUFFER_BYTES and not self._is_writer_held:
            self._is_writer_held = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Whether one direction can be closed alone: not in TLS."""
        return False

    def close(self) -> None:
        """Send what waits to be sent, say so, and disconnect."""
        if self._is_closing:
            return
        self._is_closing = True
        self._loop.remove_reader(self._connection)
        self._linger()
        if not self._unsent:
            self._say_end()

    def abort(self) -> None:
        """Disconnect at once."""
        self._lose(None)

    def _linger(self) -> None:
        """Disconnect after a while, counted from now."""
        if self._lingering is not None:
            self._lingering.cancel()
        self._lingering = self._loop.call_later(LINGER_S, self._lose, None)

    def _watch_reads(self) -> None:
        if not (self._is_watching_reads or self._is_closing):
            self._is_watching_reads = True
            self._loop.add_reader(self._connection, self._read)

    def _read(self) -> None:
        """Hand on what has arrived: not all at once, so that others have their turn."""
        for _ in range(READ_BUFFER_BYTES // RECORD_BYTES):
            if self._is_closing:
                return
            if self._is_reader_held:
                self._is_watching_reads = False
                self._loop.remove_reader(self._connection)
                return
            try:
                data = self._connection.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                return
            except OSError as error:
                # Also when new keys are asked for and the answer cannot be sent: nobody reads it.
                self._lose(error)
                return
            if not data:
                self._protocol.eof_received()
                self.close()
                return
            self._protocol.data_received(data)

    def _send(self) -> None:
        """Send as much as the system takes."""
        before = self._unsent_bytes
        try:
            while self._unsent:
                # After a refusal TLS wants the same bytes again; the first piece is still there.
                piece = self._unsent[0]
                sent = self._connection.send(piece[:RECORD_BYTES])
                self._unsent_bytes -= sent
                if sent < len(piece):
                    self._unsent[0] = piece[sent:]
                else:
                    del self._unsent[0]
        except ssl.SSLWantWriteError:
            if self._is_closing and self._unsent_bytes < before:
                self._linger()
            self._loop.add_writer(self._connection, self._send)
        except OSError as error:
            self._lose(error)
            return
        else:
            self._loop.remove_writer(self._connection)
            if self._is_closing:
                self._linger()
                self._say_end()
        if self._unsent_bytes <= WRITE_BUFFER_BYTES // 4 and self._is_writer_held:
            self._is_writer_held = False
            self._protocol.resume_writing()

    def _say_end(self) -> None:
        """Tell the peer that nothing follows, and drop what it still sends for a moment."""
        # It has been told then; what it still sends is no answer to that, and an error.
        with contextlib.suppress(OSError):
            self._connection.unwrap()
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._lose(error)
            return
        self._loop.add_reader(self._connection, self._drop)

    def _drop(self) -> None:
        try:
            # Below TLS, which is over.
            if not socket.socket.recv(self._connection, READ_BUFFER_BYTES):
                self._lose(None)
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError | None) -> None:
        """Disconnect, and tell the protocol why."""
        if self._is_lost:
            return
        self._is_closing = self._is_lost = True
        if self._lingering is not None:
            self._lingering.cancel()
        self._loop.remove_reader(self._connection)
        self._loop.remove_writer(self._connection)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._connection.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
