"""Requests and answers on one open connection to ZooKeeper, without a thread of its own.

Whoever asks sends, and whoever waits for an answer reads, for everybody: to
have another thread read and wake the one that waits takes longer than the
server takes to answer. While nobody waits, the connection's thread reads. It
waits for the channel's `fileno`, which has something to read when the socket
has and nobody else is about to read it.

Knows frames, and nothing of how the connection came to be or of its session.
Used by `zookeeper_connection`.
"""

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections import deque
from typing import Protocol

from kazoo.exceptions import ConnectionDropped, ConnectionLoss
from kazoo.protocol.connection import PING_XID, WATCH_XID
from kazoo.protocol.serialization import ReplyHeader, Watch

from pliska.locks.backends.zookeeper_answer import Answer
from pliska.locks.backends.zookeeper_requests import Answered
from pliska.locks.clock import SystemClock

RECEIVE_BYTES_MAX = 64 * 1024
FRAME_BYTES_MAX = 64 * 1024 * 1024
"""More than the records that are read in one request may have together."""
READER_LEAVES_S = 0.5
XID_MAX = 2**31 - 1

_Length = struct.Struct(">i")
_RequestHeader = struct.Struct(">iii")  # length, xid, type
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Listener(Protocol):
    """Who is told what is heard, in its order. No method may block."""

    def on_answer(self, zxid: int) -> None:
        """An answer came; the server had applied `zxid`."""

    def on_event(self, path: str) -> None:
        """A watched node changed."""

    def on_ping(self) -> None:
        """The server answered a ping."""


class Channel:
    """One life of a connection. Safe to use from any thread."""

    def __init__(self, connected: socket.socket, listener: Listener) -> None:
        """Take over a socket that does not block and is past the handshake."""
        self._socket = connected
        self._descriptor = connected.fileno()
        self._listener = listener
        self._clock = SystemClock()
        self._handling = threading.Lock()
        """Held by who takes in frames, so that they are handled in order."""
        self._incoming = bytearray()
        self._is_torn = False
        """Whether a frame may have been lost on the way in."""
        self._lock = threading.Lock()
        """Guards what follows, and the socket: TLS is one object for both ways."""
        self._reader_left = threading.Condition(self._lock)
        self._outgoing = bytearray()
        self._pending: deque[tuple[int, Answer]] = deque()
        self._xid = 0
        self._is_over = False
        self._reader: Answer | None = None
        self._reader_until_s = 0.0
        self._unattended = select.epoll()
        self._unattended.register(self._descriptor, select.EPOLLIN)

    def fileno(self) -> int:
        """What the connection's thread waits for."""
        return self._unattended.fileno()

    def submit(self, *answers: Answer) -> bool:
        """Send requests now, together and in this order.

        When the connection is over they are never sent, and have failed.

        Returns:
            False when the socket did not take all: somebody has to `flush`.
        """
        bodies = [answer.request.serialize() for answer in answers]
        with self._lock:
            if not self._is_over:
                for answer, body in zip(answers, bodies, strict=True):
                    self._xid = (self._xid % XID_MAX) + 1
                    self._pending.append((self._xid, answer))
                    answer.was_sent = True
                    header = _RequestHeader.pack(len(body) + 8, self._xid, answer.request.type)
                    self._outgoing += header + body
                return self._send_outgoing()
        for answer in answers:
            answer.fail(ConnectionLoss())
        return True

    def send(self, data: bytes) -> bool:
        """Send bytes that are no request of ours; see `submit`."""
        with self._lock:
            self._outgoing += data
            return self._send_outgoing()

    def flush(self) -> bool:
        """Send what is left; False when the socket takes no more now."""
        return self.send(b"")

    def wait_until_writable(self, timeout_s: float) -> None:
        """Wait until the socket takes more.

        Raises:
            ConnectionDropped: It did not in time.
        """
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        if not poll.poll(timeout_s * 1000):
            raise ConnectionDropped("the server takes no more")

    def wait(self, answer: Answer, timeout_s: float) -> bool:
        """Wait for an answer, and read meanwhile unless somebody does.

        Returns:
            Whether it has come, or it is known that there will be none.
        """
        until_s = self._clock.now_s() + timeout_s
        try:
            if self._begin_reading(answer, until_s):
                self._read_until(answer, until_s)
        finally:
            self._end_reading(answer)
        return answer.wait(max(0.0, until_s - self._clock.now_s()))

    def take_in(self) -> None:
        """Read what has come and handle each frame in it, unless somebody who waits does.

        Raises:
            ConnectionDropped: The connection is over, or what came is none of ZooKeeper's.
        """
        with self._handling:
            if self._reader is None or self._is_torn:
                self._take_in()

    def attend(self) -> None:
        """Have the connection's thread read again if who was to do it has gone."""
        with self._lock:
            if self._reader is not None and self._reader_until_s < self._clock.now_s():
                self._forget_reader()

    def fail(self, error: Exception) -> None:
        """Send and handle nothing any more, and let every answer that is awaited fail."""
        with self._handling, self._lock:
            self._is_over = True
            pending, self._pending = self._pending, deque()
        for _, answer in pending:
            answer.fail(error)
        self.break_off()

    def break_off(self) -> None:
        """Break the connection; whoever reads from it wakes."""
        with contextlib.suppress(OSError):
            # Not TLS's own method, after which it would read on without decrypting.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket, once the one who reads from it has left."""
        self.fail(ConnectionLoss())
        with self._lock:
            self._reader_left.wait_for(lambda: self._reader is None, READER_LEAVES_S)
            self._socket.close()
            self._unattended.close()

    def _send_outgoing(self) -> bool:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except _WOULD_BLOCK:
            return False
        except OSError:
            self.break_off()  # whoever reads hears of it
        return True

    def _begin_reading(self, answer: Answer, until_s: float) -> bool:
        with self._handling, self._lock:  # or the answer could be taken in before we wait for it
            if self._reader is not None or self._is_over or answer.has_come:
                return False
            self._reader, self._reader_until_s = answer, until_s
            self._unattended.unregister(self._descriptor)
            return True

    def _end_reading(self, answer: Answer) -> None:
        with self._lock:
            if self._reader is answer:
                self._forget_reader()

    def _forget_reader(self) -> None:
        self._reader = None
        if self._is_over:
            self._reader_left.notify_all()
        else:
            self._unattended.register(self._descriptor, select.EPOLLIN)

    def _read_until(self, answer: Answer, until_s: float) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while not answer.has_come:
            left_s = until_s - self._clock.now_s()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                return
            try:
                with self._handling:
                    self._take_in()
            except ConnectionDropped:
                return  # the connection's thread finds the same

    def _take_in(self) -> None:
        """Under `_handling`."""
        if self._is_torn or self._is_over:
            raise ConnectionDropped("the connection is over")
        try:
            self._receive()
            while (frame := self._next_frame()) is not None:
                self._handle(frame)
        except BaseException as error:
            # Half handled, by an interrupt perhaps: nothing after it can be trusted.
            self._is_torn = True
            self.break_off()
            if isinstance(error, Exception) and not isinstance(error, ConnectionDropped):
                raise ConnectionDropped(f"no answer of ZooKeeper's: {error}") from error
            raise

    def _receive(self) -> None:
        with self._lock:
            is_more_there = True
            while is_more_there:
                try:
                    received = self._socket.recv(RECEIVE_BYTES_MAX)
                except _WOULD_BLOCK:
                    return
                except OSError as error:
                    raise ConnectionDropped(f"the connection broke: {error.strerror}") from error
                if not received:
                    raise ConnectionDropped("the server closed the connection")
                self._incoming += received
                # TLS may hold more than the kernel knows of.
                is_more_there = (
                    isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
                )

    def _next_frame(self) -> bytes | None:
        """The next whole frame of what has come, without its length."""
        if len(self._incoming) < _Length.size:
            return None
        (length,) = _Length.unpack_from(self._incoming)
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {length} bytes")
        end = _Length.size + length
        if len(self._incoming) < end:
            return None
        frame = bytes(self._incoming[_Length.size : end])
        del self._incoming[:end]
        return frame

    def _handle(self, frame: bytes) -> None:
        header, offset = ReplyHeader.deserialize(frame, 0)
        if header.xid == WATCH_XID:
            event, _ = Watch.deserialize(frame, offset)
            self._listener.on_event(event.path)
        elif header.xid == PING_XID:
            self._listener.on_ping()
        else:
            xid, answer = self._pending[0]
            if header.xid != xid:
                raise ValueError(f"answer {header.xid} in the place of {xid}")
            if header.zxid > 0:
                self._listener.on_answer(header.zxid)
            answer.deliver(Answered(header.zxid, header.err, frame, offset))
            self._pending.popleft()  # not before: who is interrupted here fails those that are left
