"""The transport's client over HTTP/1.1 and TLS 1.3, on aiohttp.

Connections are kept and used again. Each carries one request at a time, so a
heartbeat beside a bulk transfer goes out on another one and never waits for it.
Time limits are on progress, not on the whole: a large gradient over a slow
link is fine as long as it moves. It repeats nothing by itself, but for a GET,
HEAD or DELETE whose connection was gone before any answer (RFC 9112, 9.3.1).
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Self

import aiohttp

from pliska.coordinator.wire.errors import (
    NoProgressError,
    ReplyLostError,
    ReplySizeError,
    UnreachableError,
)
from pliska.coordinator.wire.limits import (
    CLIENT_CONNECTIONS_MAX,
    CLIENT_IDLE_TIMEOUT_S,
    PIECE_BYTES,
    READ_BUFFER_BYTES,
    REPLY_BYTES_MAX,
)
from pliska.coordinator.wire.transport import Buffer, ClientResponse


class HttpClient:
    """Sends requests to one server. Belongs to one event loop.

    Args:
        address: The server's `host:port`.
        context: From `tls.client_context`.
        reply_bytes_max: The largest response that is taken without `into`.
    """

    def __init__(
        self, address: str, context: ssl.SSLContext, reply_bytes_max: int = REPLY_BYTES_MAX
    ) -> None:
        self.address = address
        self._context = context
        self._reply_bytes_max = reply_bytes_max
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Return the client; connections are made when they are needed."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close every connection."""
        await self.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Buffer | Iterable[Buffer] = b"",
        timeout_s: float,
        into: memoryview | None = None,
    ) -> ClientResponse:
        """Send one request and wait for its response; see `transport.Client`."""
        views = _views(body)
        length = sum(len(view) for view in views)
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                progress = _Progress(deadline, timeout_s)
                async with self._open_session().request(
                    method,
                    f"https://{self.address}{path}",
                    headers={**(headers or {}), "content-length": str(length)},
                    data=_pieces(views, progress) if length else None,
                    allow_redirects=False,
                ) as response:
                    return await self._receive(response, progress, into)
        except TimeoutError as error:
            raise NoProgressError(
                f"{method} {path} at {self.address}: nothing moved for {timeout_s:g} s"
            ) from error
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise UnreachableError(f"cannot connect to {self.address}: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ReplyLostError(
                f"{method} {path} at {self.address}: the connection broke: {error}"
            ) from error

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._context,
                    limit=CLIENT_CONNECTIONS_MAX,
                    keepalive_timeout=CLIENT_IDLE_TIMEOUT_S,
                ),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                # They say nothing to our server, which keeps a request's headers while it waits.
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
                read_bufsize=READ_BUFFER_BYTES,
            )
        return self._session

    async def _receive(
        self, response: aiohttp.ClientResponse, progress: "_Progress", into: memoryview | None
    ) -> ClientResponse:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if into is not None and 200 <= response.status < 300:
            filled = await _fill(response, into.cast("B"), progress)
            return ClientResponse(response.status, headers, into.cast("B")[:filled])
        return ClientResponse(
            response.status, headers, await _collect(response, self._reply_bytes_max, progress)
        )


class _Progress:
    """Moves a deadline on whenever a piece went through."""

    def __init__(self, deadline: asyncio.Timeout, timeout_s: float) -> None:
        self._deadline = deadline
        self._timeout_s = timeout_s

    def made(self) -> None:
        self._deadline.reschedule(asyncio.get_running_loop().time() + self._timeout_s)


def _views(body: Buffer | Iterable[Buffer]) -> list[memoryview]:
    """Return views of single bytes that share the buffers' memory."""
    buffers = [body] if isinstance(body, bytes | bytearray | memoryview) else body
    return [memoryview(buffer).cast("B") for buffer in buffers]


async def _pieces(views: list[memoryview], progress: _Progress) -> AsyncIterator[memoryview]:
    for view in views:
        for offset in range(0, len(view), PIECE_BYTES):
            yield view[offset : offset + PIECE_BYTES]
            progress.made()


async def _collect(response: aiohttp.ClientResponse, bytes_max: int, progress: _Progress) -> bytes:
    """Receive a response's body of unknown length."""
    collected = bytearray()
    reported = 0
    async for data in response.content.iter_any():
        if len(collected) + len(data) > bytes_max:
            raise ReplySizeError(f"the response has more than {bytes_max} bytes")
        collected += data
        if len(collected) - reported >= PIECE_BYTES:
            reported = len(collected)
            progress.made()
    return bytes(collected)


async def _fill(response: aiohttp.ClientResponse, view: memoryview, progress: _Progress) -> int:
    """Receive a response's body into a view and return how many bytes it had."""
    filled = reported = 0
    async for data in response.content.iter_any():
        if filled + len(data) > len(view):
            raise ReplySizeError(f"the response has more than {len(view)} bytes")
        view[filled : filled + len(data)] = data
        filled += len(data)
        if filled - reported >= PIECE_BYTES:
            reported = filled
            progress.made()
    return filled
