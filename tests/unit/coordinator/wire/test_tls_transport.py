"""A secured connection over real sockets: what it holds, and how it ends."""

import asyncio
import contextlib
import datetime
import socket
import ssl
import time
from collections.abc import Callable

import pytest

from pliska.coordinator.wire import tls_transport
from pliska.coordinator.wire.limits import READ_BUFFER_BYTES, WRITE_BUFFER_BYTES
from pliska.coordinator.wire.tls import client_context, self_signed, server_context
from pliska.coordinator.wire.tls_transport import RECORD_BYTES, TlsTransport, secure

CERTIFICATE = self_signed(["127.0.0.1"], datetime.datetime.now(datetime.UTC))
LARGE_BYTES = 8_000_000
PATIENCE_S = 5.0


class Taking(asyncio.Protocol):
    """Notes what happens to its connection."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.largest = 0
        self.ended = False
        self.holds: list[bool] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.largest = max(self.largest, len(data))

    def eof_received(self) -> None:
        self.ended = True

    def pause_writing(self) -> None:
        self.holds.append(True)

    def resume_writing(self) -> None:
        self.holds.append(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Peer:
    """A client in blocking calls, each in a thread."""

    def __init__(self, raw: socket.socket) -> None:
        context = client_context(CERTIFICATE.certificate_pem)
        self.tls = context.wrap_socket(raw, do_handshake_on_connect=False)
        self.tls.settimeout(PATIENCE_S)

    async def do(self, work: Callable[..., object], *arguments: object) -> object:
        return await asyncio.to_thread(work, *arguments)

    def read(self, count: int = 1 << 62) -> bytes:
        """Read so many bytes, or all until the end."""
        received = bytearray()
        while len(received) < count and (piece := self.tls.read(1 << 16)):
            received += piece
        return bytes(received)


@pytest.fixture
async def joined():
    """A transport with its protocol, and the peer at the other end."""
    ours, theirs = _pair()
    peer = Peer(theirs)
    secured, _ = await asyncio.gather(
        secure(ours, server_context(CERTIFICATE), PATIENCE_S), peer.do(peer.tls.do_handshake)
    )
    protocol = Taking()
    transport = TlsTransport(secured, protocol)
    yield transport, protocol, peer
    transport.abort()
    await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE_S)
    peer.tls.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    return ours, theirs


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if holds():
                return
            await asyncio.sleep(0.002)


async def test_bytes_pass_both_ways_unchanged(joined) -> None:
    transport, protocol, peer = joined
    sent = bytes(range(256)) * (LARGE_BYTES // 256)
    transport.writelines([memoryview(sent)[:100], b"", memoryview(sent)[100:]])
    sending = asyncio.create_task(peer.do(peer.tls.sendall, sent))
    received = await peer.do(peer.read, len(sent))
    await sending
    await _until(lambda: len(protocol.received) == len(sent))
    assert received == sent == protocol.received
    assert transport.get_write_buffer_size() == 0


async def test_no_more_than_a_record_is_handed_on_at_once(joined) -> None:
    _, protocol, peer = joined
    await peer.do(peer.tls.sendall, bytes(100_000))
    await _until(lambda: len(protocol.received) == 100_000)
    assert protocol.largest == RECORD_BYTES


async def test_what_a_held_reader_does_not_take_stays_with_its_sender(joined) -> None:
    transport, protocol, peer = joined
    transport.pause_reading()
    sending = asyncio.create_task(peer.do(peer.tls.sendall, bytes(LARGE_BYTES)))
    await asyncio.sleep(0.1)
    assert not protocol.received
    assert not sending.done()
    transport.resume_reading()
    await sending
    await _until(lambda: len(protocol.received) == LARGE_BYTES)


async def test_a_reader_that_holds_within_what_it_gets_gets_no_more(joined) -> None:
    transport, protocol, peer = joined
    take = protocol.data_received
    protocol.data_received = lambda data: (take(data), transport.pause_reading())
    await peer.do(peer.tls.sendall, bytes(10 * READ_BUFFER_BYTES))
    await _until(lambda: bool(protocol.received))
    await asyncio.sleep(0.05)
    assert len(protocol.received) == RECORD_BYTES


async def test_a_writer_is_held_beyond_its_limit_and_let_go_when_that_is_sent(joined) -> None:
    transport, protocol, peer = joined
    written = 0
    while not transport.get_write_buffer_size():  # until the system takes no more
        transport.write(bytes(RECORD_BYTES))
        written += RECORD_BYTES
    left = WRITE_BUFFER_BYTES - transport.get_write_buffer_size()
    transport.write(bytes(left))
    assert protocol.holds == []
    transport.write(b"1")
    assert protocol.holds == [True]
    reading = asyncio.create_task(peer.do(peer.read))
    await _until(lambda: protocol.holds == [True, False])
    transport.close()
    assert len(await reading) == written + left + 1


async def test_what_waits_is_kept_by_reference(joined) -> None:
    transport, _, peer = joined
    model = memoryview(bytearray(LARGE_BYTES))
    transport.write(model)
    assert all(piece.obj is model.obj for piece in transport._unsent)
    transport.close()
    assert len(await peer.do(peer.read)) == LARGE_BYTES


async def test_closing_sends_what_waits_and_waits_for_the_peer_to_leave(joined) -> None:
    transport, protocol, peer = joined
    transport.write(bytes(LARGE_BYTES))
    transport.close()
    assert transport.is_closing()
    transport.write(b"too late")
    assert len(await peer.do(peer.read)) == LARGE_BYTES
    assert not protocol.lost.done()
    began = time.monotonic()
    peer.tls.close()
    assert await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE_S) is None
    assert time.monotonic() - began < tls_transport.LINGER_S / 2


async def test_a_slow_peer_gets_the_whole_of_the_last_reply(joined) -> None:
    transport, protocol, peer = joined
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    peer.tls.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    transport.write(bytes(LARGE_BYTES))
    transport.close()
    taken, began = 0, time.monotonic()
    while piece := await peer.do(peer.read, LARGE_BYTES // 32):
        taken += len(piece)
        await asyncio.sleep(0.05)  # often enough that all of it takes longer than one linger
    assert time.monotonic() - began > tls_transport.LINGER_S
    assert taken == LARGE_BYTES
    assert await protocol.lost is None


async def test_a_closed_connection_does_not_wait_for_ever_for_a_peer_that_stays(
    joined, monkeypatch
) -> None:
    monkeypatch.setattr(tls_transport, "LINGER_S", 0.05)
    transport, protocol, peer = joined
    transport.close()
    sending = asyncio.create_task(peer.do(_send_until_it_breaks, peer))
    assert await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE_S) is None
    await sending
    assert not protocol.received


def _send_until_it_breaks(peer: Peer) -> None:
    with contextlib.suppress(OSError):
        while True:
            peer.tls.send(bytes(RECORD_BYTES))


@pytest.mark.parametrize("says_goodbye", [False, True])
async def test_a_closed_connection_does_not_wait_for_ever_for_a_peer_that_reads_nothing(
    joined, monkeypatch, says_goodbye: bool
) -> None:
    monkeypatch.setattr(tls_transport, "LINGER_S", 0.05)
    transport, protocol, peer = joined
    transport.write(bytes(LARGE_BYTES))
    if says_goodbye:
        peer.tls.settimeout(0)
        with contextlib.suppress(OSError):
            peer.tls.unwrap()
    else:
        transport.close()
    began = time.process_time()
    assert await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE_S) is None
    assert time.process_time() - began < tls_transport.LINGER_S / 2  # it waits, and does not ask


async def test_a_peer_that_says_goodbye_ends_the_connection(joined) -> None:
    _, protocol, peer = joined
    await peer.do(peer.tls.sendall, b"last words")
    await peer.do(peer.tls.unwrap)
    assert await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE_S) is None
    assert (bytes(protocol.received), protocol.ended) == (b"last words", True)


async def test_a_peer_that_breaks_off_is_noticed_while_bytes_wait(joined) -> None:
    transport, protocol, peer = joined
    transport.write(bytes(LARGE_BYTES))
    # Reset, as when the process dies with bytes unread.
    peer.tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    peer.tls.close()
    assert isinstance(await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE_S), OSError)
    assert transport.get_write_buffer_size() == 0


async def test_bytes_that_are_no_tls_end_the_connection(joined) -> None:
    _, protocol, peer = joined
    raw = peer.tls.detach()
    with socket.socket(fileno=raw) as plain:
        plain.sendall(bytes(1000))
        lost = await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE_S)
    assert isinstance(lost, ssl.SSLError)
    assert not protocol.received


async def test_aborting_drops_what_waits(joined) -> None:
    transport, protocol, _ = joined
    transport.write(bytes(LARGE_BYTES))
    transport.abort()
    transport.abort()
    assert transport.get_write_buffer_size() == 0
    assert await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE_S) is None


async def test_a_handshake_has_its_time() -> None:
    ours, theirs = _pair()
    with theirs:
        with pytest.raises(TimeoutError):
            await secure(ours, server_context(CERTIFICATE), 0.05)
        assert theirs.recv(1) == b""


async def test_a_client_that_leaves_within_the_handshake_is_an_error() -> None:
    ours, theirs = _pair()
    theirs.close()
    with pytest.raises(OSError):  # noqa: PT011 - reset, or the end of TLS
        await secure(ours, server_context(CERTIFICATE), PATIENCE_S)


async def test_a_client_that_speaks_no_tls_is_told_apart() -> None:
    ours, theirs = _pair()
    with theirs:
        theirs.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError, match="HTTP_REQUEST"):
            await secure(ours, server_context(CERTIFICATE), PATIENCE_S)
