"""The channel between two threads and a server that the test plays on a socket pair."""

import contextlib
import ctypes
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.exceptions import ConnectionDropped, ConnectionLoss, NoNodeError, SessionExpiredError
from kazoo.protocol.connection import PING_XID, WATCH_XID

from pliska.locks.backends.zookeeper_answer import Answer
from pliska.locks.backends.zookeeper_channel import FRAME_BYTES_MAX, Channel
from pliska.locks.backends.zookeeper_requests import RemoveWatch, Sync

NO_NODE = -101
LONG_S = 20.0


class Heard:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def on_answer(self, zxid: int) -> None:
        self.events.append(zxid)

    def on_event(self, path: str) -> None:
        self.events.append(path)

    def on_ping(self) -> None:
        self.events.append("ping")


class Server:
    """The other end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        end.settimeout(LONG_S)

    def take_request(self) -> int:
        """The number of the next request."""
        (length,) = struct.unpack(">i", self._exactly(4))
        (xid,) = struct.unpack_from(">i", self._exactly(length))
        return int(xid)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self.end.recv(count - len(data))
        return data

    def answer(self, xid: int, zxid: int = 1, error: int = 0, body: bytes = b"") -> None:
        self.end.sendall(frame_of(xid, zxid, error, body))


def frame_of(xid: int, zxid: int = 1, error: int = 0, body: bytes = b"") -> bytes:
    return struct.pack(">iiqi", 16 + len(body), xid, zxid, error) + body


def event_of(path: str) -> bytes:
    return frame_of(WATCH_XID, -1, 0, struct.pack(">iii", 2, 3, len(path)) + path.encode())


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    theirs.close()


@pytest.fixture
def server(ends: tuple[socket.socket, socket.socket]) -> Server:
    return Server(ends[1])


@pytest.fixture
def channel(ends: tuple[socket.socket, socket.socket], heard: Heard) -> Iterator[Channel]:
    channel = Channel(ends[0], heard)
    yield channel
    channel.close()


def submitted(channel: Channel) -> Answer:
    answer = Answer(Sync("/"))
    assert channel.submit(answer)
    return answer


def is_unattended(channel: Channel) -> bool:
    """Whether the connection's thread would find something to read."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def wait_until(claim: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LONG_S
    while not claim():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.001)


def is_reading(channel: Channel) -> bool:
    return channel._reader is not None


def test_whoever_waits_reads_its_own_answer_and_those_of_others(
    channel: Channel, server: Server, heard: Heard
) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = submitted(channel), submitted(channel)
        waits = [pool.submit(channel.wait, each, LONG_S) for each in (second, first)]
        assert (server.take_request(), server.take_request()) == (1, 2)
        wait_until(lambda: is_reading(channel))
        server.end.sendall(
            event_of("/a") + frame_of(1, 7) + frame_of(PING_XID) + frame_of(2, 8, NO_NODE)
        )
        assert all(wait.result(LONG_S) for wait in waits)
    assert first.read() == 7
    with pytest.raises(NoNodeError):
        second.read()
    assert heard.events == ["/a", 7, "ping", 8]


def test_an_answer_that_nobody_waits_for_is_left_to_the_connections_thread(
    channel: Channel, server: Server
) -> None:
    answer = submitted(channel)
    assert not is_unattended(channel)
    server.answer(server.take_request())
    wait_until(lambda: is_unattended(channel))
    channel.take_in()
    assert answer.has_come
    assert not is_unattended(channel)
    assert channel.wait(answer, 0.0)


def test_the_connections_thread_sleeps_while_somebody_waits_and_reads_after_it_gave_up(
    channel: Channel, server: Server
) -> None:
    answer = submitted(channel)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.wait, answer, LONG_S)
        wait_until(lambda: is_reading(channel))
        server.end.sendall(frame_of(server.take_request())[:10])  # readable, and not yet an answer
        channel.take_in()  # as when it had been woken just before
        assert not is_unattended(channel)
        assert not answer.has_come
        server.end.sendall(frame_of(1)[10:])
        assert waiting.result(LONG_S)
    late = submitted(channel)
    assert not channel.wait(late, 0.01)
    server.answer(server.take_request(), 5)
    wait_until(lambda: is_unattended(channel))
    channel.take_in()
    assert late.read() == 5


def test_an_answer_taken_in_just_before_somebody_waits_for_it_is_not_waited_for(
    channel: Channel, server: Server
) -> None:
    with ThreadPoolExecutor(1) as pool:
        for number in range(1, 301):
            answer = submitted(channel)
            waiting = pool.submit(channel.wait, answer, LONG_S)
            server.answer(server.take_request(), number)
            while not answer.has_come:
                channel.take_in()
            assert waiting.result(1.0)
            assert answer.read() == number


def test_whoever_waits_learns_at_once_that_the_connection_is_over(
    channel: Channel, server: Server
) -> None:
    answer = submitted(channel)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.wait, answer, LONG_S)
        wait_until(lambda: is_reading(channel))
        channel.fail(SessionExpiredError())
        assert waiting.result(LONG_S)
    with pytest.raises(SessionExpiredError):
        answer.read()
    assert not answer.is_delivered
    assert answer.was_sent
    late = Answer(Sync("/"))
    channel.submit(late)
    with pytest.raises(ConnectionLoss):
        late.read()
    assert not late.was_sent
    with pytest.raises(ConnectionDropped):
        channel.take_in()
    assert server.take_request() == 1
    assert server.end.recv(1) == b""


@pytest.mark.parametrize(
    "bytes_",
    [
        b"",
        struct.pack(">i", -1),
        struct.pack(">i", FRAME_BYTES_MAX + 1),
        struct.pack(">i", 3) + b"abc",
        frame_of(2),
        frame_of(1) + frame_of(2),
    ],
)
def test_a_server_that_leaves_or_makes_no_sense_ends_the_connection(
    channel: Channel, server: Server, bytes_: bytes
) -> None:
    answer = submitted(channel)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.wait, answer, LONG_S)
        wait_until(lambda: is_reading(channel))
        server.take_request()
        server.end.sendall(bytes_)
        if not bytes_:
            server.end.shutdown(socket.SHUT_RDWR)
        # Not the caller's business: the connection's thread finds it too, and tells everybody.
        wait_until(lambda: is_unattended(channel) or answer.has_come)
        wait_until(lambda: not is_reading(channel))
        with pytest.raises(ConnectionDropped):
            channel.take_in()
        channel.fail(ConnectionLoss())
        assert waiting.result(LONG_S)


def test_a_frame_of_the_greatest_length_is_waited_for(channel: Channel, server: Server) -> None:
    answer = submitted(channel)
    server.end.sendall(struct.pack(">i", FRAME_BYTES_MAX))
    server.end.sendall(bytes(10))
    channel.take_in()
    assert not answer.has_come


def test_who_is_interrupted_while_it_reads_leaves_the_connection_to_be_begun_again(
    channel: Channel, server: Server, heard: Heard
) -> None:
    """What it had half read would be taken for the answers of others."""
    answer, other = submitted(channel), submitted(channel)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    heard.on_answer = interrupt  # type: ignore[method-assign]
    server.answer(1)
    with pytest.raises(KeyboardInterrupt):
        channel.wait(answer, LONG_S)
    assert not is_reading(channel)
    wait_until(lambda: is_unattended(channel))
    with pytest.raises(ConnectionDropped):
        channel.take_in()
    channel.fail(ConnectionLoss())
    assert channel.wait(other, 0.0)


def test_who_is_interrupted_while_it_waits_leaves_the_reading_to_the_connections_thread(
    channel: Channel, server: Server
) -> None:
    answer, is_over = submitted(channel), threading.Event()

    def wait() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            channel.wait(answer, LONG_S)
        is_over.set()

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: is_reading(channel))
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
    )
    server.end.sendall(event_of("/wakes it"))  # Python raises it when poll has returned
    assert is_over.wait(LONG_S)
    thread.join()
    assert not is_reading(channel)
    with contextlib.suppress(ConnectionDropped):
        server.answer(server.take_request())
        wait_until(lambda: is_unattended(channel))
        channel.take_in()
        assert answer.has_come


def test_a_reader_that_never_came_back_is_replaced_after_its_time(
    channel: Channel, server: Server
) -> None:
    """As when a second interrupt hits it while it leaves."""
    answer = submitted(channel)
    assert channel._begin_reading(answer, time.clock_gettime(time.CLOCK_BOOTTIME))
    server.answer(server.take_request())
    assert not is_unattended(channel)
    wait_until(lambda: channel.attend() or is_unattended(channel))  # type: ignore[func-returns-value]
    channel.take_in()
    assert answer.has_come


def test_what_the_socket_does_not_take_is_sent_later_and_in_order(
    channel: Channel, server: Server
) -> None:
    path = "/" + 100_000 * "x"
    answers = [Answer(RemoveWatch(path)) for _ in range(20)]
    assert not channel.submit(*answers)
    with ThreadPoolExecutor(1) as pool:
        requests = pool.submit(lambda: [server.take_request() for _ in range(21)])
        last = Answer(Sync("/"))
        channel.submit(last)
        while not channel.flush():
            channel.wait_until_writable(LONG_S)
        assert requests.result(LONG_S) == list(range(1, 22))


def test_a_server_that_takes_nothing_is_left_in_time(channel: Channel) -> None:
    while channel.submit(Answer(RemoveWatch("/" + 100_000 * "x"))):
        pass
    with pytest.raises(ConnectionDropped, match="takes no more"):
        channel.wait_until_writable(0.05)


def test_closing_waits_for_the_one_who_reads(
    ends: tuple[socket.socket, socket.socket], heard: Heard
) -> None:
    channel = Channel(ends[0], heard)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.wait, submitted(channel), LONG_S)
        wait_until(lambda: is_reading(channel))
        channel.close()
        assert not is_reading(channel)
        assert waiting.result(LONG_S)
    assert ends[0].fileno() == -1
