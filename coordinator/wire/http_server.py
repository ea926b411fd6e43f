"""The transport's server over HTTP/1.1 and TLS 1.3, on aiohttp.

It gives strangers nothing for free: a bounded number of connections,
handshakes and request headers against the clock, bodies only with an announced
length, and a lowest pace both ways. What requests mean is the handler's matter.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeAlias

from aiohttp import web

from pliska.coordinator.wire import limits
from pliska.coordinator.wire.errors import ListenError, RefusedError
from pliska.coordinator.wire.http_body import STANDARD, HttpBody, ServerLimits, drain
from pliska.coordinator.wire.replies import Reply, ReplyCode
from pliska.coordinator.wire.tls_transport import TlsTransport, secure
from pliska.coordinator.wire.transport import Handler, Request, Response

logger = logging.getLogger(__name__)

OnRefusal: TypeAlias = Callable[[ReplyCode, str], None]
"""Takes the code and the reason of a refusal."""


class HttpServer:
    """Serves one handler until it is closed.

    Args:
        handler: Answers each request; it may take its time (long polls).
        context: From `tls.server_context`.
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
        granted: Limits.
        on_refusal: Told of what is refused before the handler has answered.
    """

    def __init__(
        self,
        handler: Handler,
        context: ssl.SSLContext,
        host: str = "127.0.0.1",
        port: int = 0,
        granted: ServerLimits = STANDARD,
        on_refusal: OnRefusal = lambda _code, _reason: None,
    ) -> None:
        self._handler = handler
        self._on_refusal = on_refusal
        self._context = context
        self._host = host
        self._port = port
        self._granted = granted
        self._listener: socket.socket | None = None
        self._web: web.Server | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()
        self._all_closed = asyncio.Event()

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            ListenError: The address is taken or not this machine's.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (self._host, self._port), family=family, backlog=limits.CONNECTIONS_WAITING_MAX
            )
        except OSError as error:
            raise ListenError(
                f"cannot listen on {self._host} port {self._port}: {error.strerror}; "
                "name another address or port"
            ) from error
        self._listener.setblocking(False)
        self._web = web.Server(self._answer)
        self._accepting = asyncio.create_task(self._accept(self._listener))

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._listener is None:
            raise RuntimeError("a server has an address once it is started")
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def address(self) -> str:
        """The `host:port` it listens on."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self.port}"

    async def close(self) -> None:
        """Stop listening, let running handlers end, cancel those that do not, disconnect."""
        if self._listener is None or self._web is None or self._accepting is None:
            return
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        self._listener.close()
        for handshake in self._handshakes:
            handshake.cancel()
        self._web.pre_shutdown()
        # Half of it, since aiohttp waits twice: for a handler's end, and after a first reminder.
        await self._web.shutdown(self._granted.close_timeout_s / 2)
        try:
            async with asyncio.timeout(self._granted.close_timeout_s):
                while self._connections:
                    self._all_closed.clear()
                    await self._all_closed.wait()
        except TimeoutError:
            logger.warning("connections left open at close count=%d", len(self._connections))

    async def _accept(self, listener: socket.socket) -> None:
        """Take connections, each with its handshake in a task of its own."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                # Out of file descriptors: those that are open will be closed by their limits.
                logger.warning("cannot accept connections reason=%s", error)
                await asyncio.sleep(0.1)
                continue
            if len(self._connections) + len(self._handshakes) >= self._granted.connections_max:
                logger.info("connection refused reason=over %d", self._granted.connections_max)
                connection.close()
                continue
            if len(self._handshakes) >= limits.HANDSHAKES_AT_ONCE:
                await asyncio.wait(
                    self._handshakes,
                    timeout=limits.HANDSHAKE_TURN_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            handshake = asyncio.create_task(self._shake_hands(connection))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            secured = await secure(connection, self._context, self._granted.handshake_timeout_s)
            TlsTransport(secured, self._connection())
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            logger.info("handshake failed reason=%s", error)
        except ssl.SSLError as error:
            self._on_refusal(ReplyCode.SCHEMA, f"this is not TLS 1.3: {error.reason}")
            logger.info("handshake failed reason=%s", error)
        except OSError as error:
            logger.info("handshake failed reason=%s", error)

    def _connection(self) -> "_Connection":
        if self._web is None:
            raise RuntimeError("connections come after start")
        return _Connection(
            self._web,
            self._connections,
            self._all_closed,
            self._on_refusal,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self._granted.idle_timeout_s,
            lingering_time=0.0,
            # It receives until it has more than twice this: with the first whole record.
            read_bufsize=limits.READ_BUFFER_BYTES // 4,
            max_line_size=limits.HEADER_VALUE_BYTES_MAX,
            max_field_size=limits.HEADER_VALUE_BYTES_MAX,
            max_headers=limits.HEADERS_MAX,
            auto_decompress=False,
            access_log=None,
        )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = None
        try:
            body = HttpBody(request, self._granted)
            response = await self._handler(_request_of(request, body))
        except RefusedError as error:
            self._on_refusal(error.code, str(error))
            response = Response.of_reply(Reply.to_refusal(error))
        except Exception:
            # The worker learns nothing from our traceback; the operator does.
            logger.exception("request failed method=%s path=%s", request.method, request.path)
            response = Response(500, {"content-type": "text/plain"}, b"internal error\n")
        is_refused_unread = body is None or body.remaining > 0
        sent = await self._send(request, response, is_last=is_refused_unread)
        if is_refused_unread:
            await drain(request.content, self._granted.refused_body_drain_s)
        return sent

    async def _send(
        self, request: web.BaseRequest, response: Response, *, is_last: bool
    ) -> web.StreamResponse:
        """Write a response in pieces, at the reader's pace but not below the lowest."""
        body = memoryview(response.body or b"").cast("B")
        sending = web.StreamResponse(
            status=response.status, headers={"server": "pliska", **response.headers}
        )
        sending.content_length = len(body)
        if is_last:
            # The rest of the request's body is of no use: this connection ends here.
            sending.force_close()
        try:
            async with asyncio.timeout(self._granted.stall_timeout_s):
                await sending.prepare(request)
            for offset in range(
                0, 0 if request.method == "HEAD" else len(body), limits.PIECE_BYTES
            ):
                piece = body[offset : offset + limits.PIECE_BYTES]
                async with asyncio.timeout(self._granted.piece_timeout_s(len(piece))):
                    await sending.write(piece)
            async with asyncio.timeout(self._granted.stall_timeout_s):
                await sending.write_eof()
        except TimeoutError:
            logger.info("response cut off reason=its reader stood still path=%s", request.path)
            if request.transport is not None:
                request.transport.abort()
        except OSError as error:
            logger.debug("response not delivered path=%s reason=%s", request.path, error)
        return sending


class _Connection(web.RequestHandler):
    """One connection, counted while it is open, that does not log strangers' tracebacks."""

    __slots__ = ("_all_closed", "_on_refusal", "_open")

    def __init__(
        self,
        server: web.Server,
        open_connections: set["_Connection"],
        all_closed: asyncio.Event,
        on_refusal: OnRefusal,
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self._open = open_connections
        self._all_closed = all_closed
        self._on_refusal = on_refusal

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._open.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open.discard(self)
        self._all_closed.set()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP as any other malformed message."""
        if status >= 500:
            logger.error("response failed path=%s", request.path, exc_info=exc)
            response = web.Response(status=status, text="internal error\n")
        else:
            logger.info("not a request remote=%s reason=%s", request.remote, message or exc)
            reply = Reply(code=ReplyCode.SCHEMA, reason="this is not an HTTP/1.1 request")
            self._on_refusal(reply.code, reply.reason)
            response = web.Response(
                status=status, body=reply.to_json(), content_type="application/json"
            )
        response.force_close()
        return response


def _request_of(request: web.BaseRequest, body: HttpBody) -> Request:
    return Request(
        method=request.method,
        path=request.path,
        query=dict(request.query),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
        remote=request.remote or "",
    )
