"""What every transport promises, over real sockets and TLS on the loopback."""

import asyncio
import datetime
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliska.coordinator.wire import (
    BadSignatureError,
    Handler,
    NoProgressError,
    Reply,
    ReplyCode,
    ReplyLostError,
    ReplySizeError,
    Request,
    Response,
    StalledBodyError,
    TruncatedBodyError,
    UnreachableError,
)
from pliska.coordinator.wire.http_body import ServerLimits
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.limits import (
    HANDSHAKE_TURN_S,
    HANDSHAKES_AT_ONCE,
    HEADER_VALUE_BYTES_MAX,
    HEADERS_MAX,
    PIECE_BYTES,
    READ_BUFFER_BYTES,
    REPLY_BYTES_MAX,
)
from pliska.coordinator.wire.tls import client_context, self_signed, server_context

CERTIFICATE = self_signed(["127.0.0.1"], datetime.datetime.now(datetime.UTC))
GRADIENT_BYTES = 40_000_000
QUICK = ServerLimits(
    handshake_timeout_s=1.0,
    idle_timeout_s=0.5,
    stall_timeout_s=0.5,
    bytes_per_s_min=20 * PIECE_BYTES,
    refused_body_drain_s=1.0,
    close_timeout_s=1.0,
)

Serve = Callable[..., Awaitable[HttpServer]]
Connect = Callable[[HttpServer], HttpClient]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers = []

    async def start(handler: Handler, granted: ServerLimits = QUICK) -> HttpServer:
        server = HttpServer(handler, server_context(CERTIFICATE), granted=granted)
        await server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients = []

    def make(server: HttpServer) -> HttpClient:
        clients.append(HttpClient(server.address, client_context(CERTIFICATE.certificate_pem)))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


async def connect_raw(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A TLS connection on which a test can write any bytes."""
    return await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=client_context(CERTIFICATE.certificate_pem)
    )


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def echo(request: Request) -> Response:
    return Response(200, {"x-path": request.path}, await request.body.read(REPLY_BYTES_MAX))


async def test_a_request_reaches_the_handler_as_it_was_sent(serve, connect) -> None:
    seen: list[Request] = []

    async def handler(request: Request) -> Response:
        seen.append(request)
        assert await request.body.read(10) == b"body"
        return Response(201, {"X-Answer": "yes"}, b"done")

    client = connect(await serve(handler))
    response = await client.request(
        "PUT", "/jobs/digits?after=7&x=%20", headers={"X-Ask": "1"}, body=b"body", timeout_s=5
    )
    (request,) = seen
    assert (request.method, request.path) == ("PUT", "/jobs/digits")
    assert request.query == {"after": "7", "x": " "}
    assert request.headers["x-ask"] == "1"
    assert request.remote == "127.0.0.1"
    assert (request.body.length, request.body.remaining) == (4, 0)
    assert (response.status, response.headers["x-answer"], response.body) == (201, "yes", b"done")


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, GRADIENT_BYTES])
async def test_a_body_of_any_size_is_received_into_given_memory(serve, connect, size: int) -> None:
    received = bytearray(size)

    async def handler(request: Request) -> Response:
        assert request.body.length == size
        await request.body.read_into(memoryview(received))
        return Response()

    sent = bytes(range(256)) * (size // 256 + 1)
    buffers = [memoryview(sent)[: size // 3], memoryview(sent)[size // 3 : size]]
    client = connect(await serve(handler))
    assert (await client.request("POST", "/", body=buffers, timeout_s=5)).status == 200
    assert received == sent[:size]


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, GRADIENT_BYTES])
async def test_a_response_of_any_size_lands_in_given_memory(serve, connect, size: int) -> None:
    model = memoryview(bytes(range(256)) * (size // 256 + 1))[:size]

    async def handler(request: Request) -> Response:
        return Response(200, {"etag": '"v7"'}, model)

    into = memoryview(bytearray(size))
    client = connect(await serve(handler))
    response = await client.request("GET", "/model", into=into, timeout_s=5)
    assert response.headers["etag"] == '"v7"'
    assert response.headers["content-length"] == str(size)
    assert response.body == into == model


async def test_a_response_larger_than_its_memory_is_an_error(serve, connect) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, {}, bytes(1001))

    client = connect(await serve(handler))
    with pytest.raises(ReplySizeError, match="more than 1000"):
        await client.request("GET", "/", into=memoryview(bytearray(1000)), timeout_s=5)
    into = memoryview(bytearray(1001))
    assert len((await client.request("GET", "/", into=into, timeout_s=5)).body) == 1001


async def test_a_reply_is_bounded_where_no_memory_is_given(serve, connect) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, {}, bytes(int(request.path[1:])))

    client = connect(await serve(handler))
    at_limit = await client.request("GET", f"/{REPLY_BYTES_MAX}", timeout_s=5)
    assert len(at_limit.body) == REPLY_BYTES_MAX
    with pytest.raises(ReplySizeError):
        await client.request("GET", f"/{REPLY_BYTES_MAX + 1}", timeout_s=5)


async def test_an_error_reply_leaves_the_given_memory_alone(serve, connect) -> None:
    async def handler(request: Request) -> Response:
        return Response.of_reply(Reply(code=ReplyCode.BUSY, retry_after_s=0.2))

    client = connect(await serve(handler))
    into = memoryview(bytearray(b"kept"))
    response = await client.request("GET", "/", into=into, timeout_s=5)
    assert (response.status, response.headers["retry-after"]) == (503, "1")
    assert Reply.from_json(response.body).retry_after_s == 0.2
    assert into == b"kept"


async def test_a_large_body_refused_at_its_header_still_gets_its_reply(serve, connect) -> None:
    read: list[int] = []

    async def handler(request: Request) -> Response:
        await request.body.read_into(memoryview(bytearray(100)))
        read.append(request.body.length - request.body.remaining)
        raise BadSignatureError("the signature does not fit")

    client = connect(await serve(handler, ServerLimits()))
    body = [memoryview(bytearray(GRADIENT_BYTES))]
    for _ in range(3):
        response = await client.request("POST", "/", body=body, timeout_s=5)
        assert response.status == 401
        assert Reply.from_json(response.body) == Reply(
            code=ReplyCode.BAD_SIG, reason="the signature does not fit"
        )
    assert read == [100] * 3


async def test_a_refused_body_does_not_spoil_the_next_request(serve, connect) -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/refused":
            return Response(409)
        return await echo(request)

    client = connect(await serve(handler, ServerLimits()))
    for _ in range(5):
        refused = await client.request("POST", "/refused", body=bytes(3_000_000), timeout_s=5)
        assert refused.status == 409
        assert (await client.request("POST", "/", body=b"next", timeout_s=5)).body == b"next"


async def test_a_sender_that_reads_only_after_sending_gets_the_reply_to_a_refusal(serve) -> None:
    async def handler(request: Request) -> Response:
        return Response(409, {}, b"refused")

    reader, writer = await connect_raw(await serve(handler, ServerLimits()))
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % GRADIENT_BYTES)
    for _ in range(40):
        writer.write(bytes(GRADIENT_BYTES // 40))
        await writer.drain()
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 409")
    assert answer.endswith(b"refused")
    assert b"Connection: close" in answer
    await hang_up(writer)


async def test_a_connection_with_a_half_sent_body_is_not_used_again() -> None:
    requests: list[bytes] = []
    served: set[asyncio.Task[None] | None] = set()

    async def careless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer early and be ready to go on with the connection."""
        served.add(asyncio.current_task())
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        await hang_up(writer)

    server = await asyncio.start_server(careless, "127.0.0.1", 0, ssl=server_context(CERTIFICATE))
    port = server.sockets[0].getsockname()[1]
    context = client_context(CERTIFICATE.certificate_pem)
    async with server, HttpClient(f"127.0.0.1:{port}", context) as client:
        for number in range(2):
            body = bytes(GRADIENT_BYTES)
            answer = await client.request("POST", f"/{number}", body=body, timeout_s=2)
            assert answer.status == 409
        await asyncio.gather(*filter(None, served))
    assert [request.split()[1] for request in requests] == [b"/0", b"/1"]


async def test_connections_are_used_again(serve, connect) -> None:
    server = await serve(echo)
    client = connect(server)
    for _ in range(5):
        await client.request("POST", "/", body=b"x", timeout_s=5)
    assert len(server._connections) == 1


async def test_a_body_over_the_limit_is_refused_and_one_at_the_limit_is_not(serve, connect) -> None:
    client = connect(await serve(echo, replace(QUICK, body_bytes_max=1000)))
    assert (await client.request("POST", "/", body=bytes(1000), timeout_s=5)).status == 200
    response = await client.request("POST", "/", body=bytes(1001), timeout_s=5)
    assert response.status == 413
    assert Reply.from_json(response.body).code is ReplyCode.TOO_LARGE


async def test_a_handler_reads_no_more_than_it_asked_for(serve, connect) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, {}, await request.body.read(5))

    client = connect(await serve(handler))
    assert (await client.request("POST", "/", body=b"12345", timeout_s=5)).body == b"12345"
    assert (await client.request("POST", "/", body=b"123456", timeout_s=5)).status == 413


async def test_a_body_is_not_received_ahead_of_its_reader_beyond_the_limit(serve) -> None:
    held: list[int] = []
    is_told, release = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        await request.body.read_into(memoryview(bytearray(GRADIENT_BYTES // 2)))
        await asyncio.sleep(0.1)  # it goes on arriving
        held.append(request.body._stream.total_bytes - request.body.length + request.body.remaining)
        is_told.set()
        await release.wait()
        return Response()

    _, writer = await connect_raw(await serve(handler, ServerLimits()))
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % GRADIENT_BYTES)
    writer.write(bytes(GRADIENT_BYTES))
    await is_told.wait()
    assert 0 < held[0] < 2 * READ_BUFFER_BYTES
    release.set()
    await hang_up(writer)


async def test_a_bug_in_a_handler_is_logged_and_not_shown(serve, connect, caplog) -> None:
    async def handler(request: Request) -> Response:
        raise ZeroDivisionError("secret")

    client = connect(await serve(handler))
    response = await client.request("GET", "/x", timeout_s=5)
    assert (response.status, response.body) == (500, b"internal error\n")
    assert "secret" in caplog.text


async def test_a_heartbeat_does_not_wait_behind_bulk(serve, connect) -> None:
    release = asyncio.Event()
    arrived = asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.path == "/bulk":
            arrived.set()
            await release.wait()
            await request.body.read_into(memoryview(bytearray(request.body.length)))
        return Response()

    client = connect(await serve(handler))
    bulk = asyncio.create_task(
        client.request("POST", "/bulk", body=bytes(GRADIENT_BYTES), timeout_s=10)
    )
    await arrived.wait()
    for _ in range(3):
        assert (await client.request("POST", "/heartbeat", body=b"x", timeout_s=2)).status == 200
    assert not bulk.done()
    release.set()
    assert (await bulk).status == 200


async def test_a_long_poll_may_outlast_the_idle_timeout(serve, connect) -> None:
    async def handler(request: Request) -> Response:
        await asyncio.sleep(3 * QUICK.idle_timeout_s)
        return Response(204)

    client = connect(await serve(handler))
    assert (await client.request("GET", "/", timeout_s=5)).status == 204


async def test_a_server_that_stands_still_is_given_up(serve, connect) -> None:
    async def handler(request: Request) -> Response:
        await asyncio.sleep(3600)
        return Response()

    client = connect(await serve(handler))
    with pytest.raises(NoProgressError, match=r"nothing moved for 0\.2 s"):
        await client.request("GET", "/", timeout_s=0.2)
    with pytest.raises(NoProgressError):
        await client.request("POST", "/", body=bytes(GRADIENT_BYTES), timeout_s=0.2)


async def test_a_slow_transfer_that_moves_is_not_given_up(serve, connect) -> None:
    async def handler(request: Request) -> Response:
        piece = memoryview(bytearray(GRADIENT_BYTES // 40))
        while request.body.remaining:
            await request.body.read_into(piece)
            await asyncio.sleep(0.04)
        return Response()

    client = connect(await serve(handler, ServerLimits()))
    started = asyncio.get_running_loop().time()
    await client.request("POST", "/", body=bytes(GRADIENT_BYTES), timeout_s=1)
    assert asyncio.get_running_loop().time() - started > 1


async def test_nobody_listening_is_unreachable(serve, connect) -> None:
    server = await serve(echo)
    client = connect(server)
    address = server.address
    await server.close()
    with pytest.raises(UnreachableError, match=address):
        await client.request("GET", "/", timeout_s=5)


@pytest.mark.parametrize("address", ["no such host", "127.0.0.1:99999"])
async def test_an_address_that_is_none_is_unreachable(address: str) -> None:
    async with HttpClient(address, client_context(CERTIFICATE.certificate_pem)) as client:
        with pytest.raises(UnreachableError):
            await client.request("GET", "/", timeout_s=5)


async def test_a_server_with_another_certificate_is_not_spoken_to(serve) -> None:
    server = await serve(echo)
    other = self_signed(["127.0.0.1"], datetime.datetime.now(datetime.UTC))
    async with HttpClient(server.address, client_context(other.certificate_pem)) as client:
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.request("POST", "/", body=b"secret", timeout_s=5)


async def test_a_server_that_dies_before_its_reply_leaves_the_outcome_unknown(
    serve, connect
) -> None:
    asked = asyncio.Event()

    async def handler(request: Request) -> Response:
        asked.set()
        await asyncio.sleep(3600)
        return Response()

    server = await serve(handler, replace(QUICK, close_timeout_s=0.1))
    request = asyncio.create_task(connect(server).request("POST", "/", timeout_s=5))
    await asked.wait()
    await server.close()
    with pytest.raises(ReplyLostError):
        await request


async def test_a_closing_server_lets_a_running_handler_end(serve, connect) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        asked.set()
        await release.wait()
        return Response(200, {}, b"ended")

    server = await serve(handler)
    request = asyncio.create_task(connect(server).request("GET", "/", timeout_s=5))
    await asked.wait()
    closing = asyncio.create_task(server.close())
    await asyncio.sleep(0)
    release.set()
    assert (await request).body == b"ended"
    await closing


async def test_a_sender_that_leaves_within_its_body_is_noticed(serve) -> None:
    errors: list[Exception] = []
    noticed = asyncio.Event()

    async def handler(request: Request) -> Response:
        try:
            await request.body.read_into(memoryview(bytearray(1000)))
        except TruncatedBodyError as error:
            errors.append(error)
            noticed.set()
            raise
        return Response()

    _, writer = await connect_raw(await serve(handler))
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + bytes(400))
    await writer.drain()
    await hang_up(writer)
    await noticed.wait()
    assert type(errors[0]) is TruncatedBodyError


async def test_a_sender_that_stalls_within_its_body_is_cut_off_with_a_reply(serve) -> None:
    errors: list[Exception] = []

    async def handler(request: Request) -> Response:
        try:
            await request.body.read(1000)
        except StalledBodyError as error:
            errors.append(error)
            raise
        return Response()

    reader, writer = await connect_raw(await serve(handler))
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + bytes(400))
    answer = await reader.read()
    assert b'"SCHEMA"' in answer
    assert "400 of 1000 bytes" in str(errors[0])
    await hang_up(writer)


async def open_connections(server: HttpServer, count: int) -> None:
    """Wait until the server has so many."""
    async with asyncio.timeout(5):
        while len(server._connections) != count:  # noqa: ASYNC110 - it announces only the last
            await asyncio.sleep(0.01)


async def dribble(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)


async def test_a_sender_that_dribbles_its_body_is_cut_off(serve) -> None:
    async def handler(request: Request) -> Response:
        await request.body.read(1_000_000)
        return Response()

    reader, writer = await connect_raw(
        await serve(handler, replace(QUICK, refused_body_drain_s=0.1))
    )
    writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n")
    dribbling = asyncio.create_task(dribble(writer))
    async with asyncio.timeout(5):
        assert b"came too slowly" in await reader.read()
    dribbling.cancel()
    await hang_up(writer)


@pytest.mark.parametrize("is_dribbling", [False, True])
async def test_a_connection_without_a_whole_request_is_closed(serve, is_dribbling: bool) -> None:
    reader, writer = await connect_raw(await serve(echo))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    dribbling = asyncio.create_task(dribble(writer)) if is_dribbling else None
    async with asyncio.timeout(5):
        with suppress(OSError):
            assert await reader.read() == b""
    if dribbling is not None:
        dribbling.cancel()
    await hang_up(writer)


async def test_a_reader_that_stands_still_is_cut_off(serve) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, {}, bytes(GRADIENT_BYTES))

    server = await serve(handler)
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.setblocking(False)
    context = client_context(CERTIFICATE.certificate_pem)
    reader, writer = await asyncio.open_connection(sock=connection, ssl=context, server_hostname="")
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readexactly(100)
    writer.transport.pause_reading()
    await open_connections(server, 0)
    writer.transport.abort()


async def test_a_stranger_without_tls_is_cut_off(serve) -> None:
    server = await serve(echo)
    silent_reader, silent = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(5):
        assert await silent_reader.read() == b""
    await hang_up(silent)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(5):
        with suppress(OSError):
            assert b"HTTP" not in await reader.read()
    await hang_up(writer)


async def test_those_who_connect_and_say_nothing_keep_nobody_out(serve, connect) -> None:
    server = await serve(echo, ServerLimits())
    silent = [
        await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(HANDSHAKES_AT_ONCE + 5)
    ]
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await connect(server).request("POST", "/", body=b"x", timeout_s=5)).body == b"x"
    assert 5 * HANDSHAKE_TURN_S < loop.time() - began < 2
    assert len(server._handshakes) == len(silent)
    for _, writer in silent:
        await hang_up(writer)


async def test_connections_over_the_cap_are_refused_until_one_is_free(serve, connect) -> None:
    server = await serve(echo, replace(QUICK, connections_max=2, idle_timeout_s=5.0))
    first, second = await connect_raw(server), await connect_raw(server)
    with pytest.raises(OSError):  # noqa: PT011 - reset, or end of file in the handshake
        await connect_raw(server)
    await hang_up(first[1])
    await open_connections(server, 1)
    assert (await connect(server).request("POST", "/", body=b"free", timeout_s=5)).body == b"free"
    await hang_up(second[1])


async def answer_to(server: HttpServer, data: bytes) -> bytes:
    reader, writer = await connect_raw(server)
    writer.write(data)
    async with asyncio.timeout(5):
        try:
            answer = await reader.read()
        except OSError:
            answer = b""
    await hang_up(writer)
    return answer


LONGEST = b"/".ljust(HEADER_VALUE_BYTES_MAX, b"a")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\xff\x00\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET " + LONGEST + b"a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + LONGEST + b"a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * HEADERS_MAX + b"\r\n",
    ],
    ids=["bytes", "negative", "huge", "chunked", "long-path", "long-header", "many-headers"],
)
async def test_what_is_no_request_gets_a_typed_reply(serve, caplog, request_bytes: bytes) -> None:
    caplog.set_level(logging.WARNING)
    answer = await answer_to(await serve(echo), request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 400 Bad Request" in head
    assert Reply.from_json(body).code is ReplyCode.SCHEMA
    assert caplog.text == ""


async def test_a_request_at_its_limits_passes(serve) -> None:
    headers = b"Host: x\r\nConnection: close\r\n" + b"X-A: b\r\n" * (HEADERS_MAX - 3)
    request = b"GET " + LONGEST + b" HTTP/1.1\r\n" + headers + b"X: " + LONGEST + b"\r\n\r\n"
    assert (await answer_to(await serve(echo), request)).startswith(b"HTTP/1.1 200 OK")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.binary(max_size=300) | st.binary(max_size=50).map(lambda b: b"GET /" + b + b"\r\n\r\n")
)
def test_random_bytes_neither_stop_the_server_nor_make_a_traceback(caplog, data: bytes) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        server = HttpServer(echo, server_context(CERTIFICATE), granted=QUICK)
        await server.start()
        await answer_to(server, data)
        assert (await answer_to(server, b"GET /ok HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.")
        await server.close()

    asyncio.run(scenario())
    assert caplog.text == ""


async def test_only_tls_1_3_is_spoken(serve) -> None:
    server = await serve(echo)
    context = client_context(CERTIFICATE.certificate_pem)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):  # noqa: PT011 - an alert, or a reset before it is read
        await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
