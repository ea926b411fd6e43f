"""The body of one HTTP request, read at the sender's pace but not below the lowest.

Used by `http_server.py` only.
"""

import asyncio
from dataclasses import dataclass

from aiohttp import StreamReader, web

from pliska.coordinator.wire import limits
from pliska.coordinator.wire.errors import (
    MalformedError,
    StalledBodyError,
    TooLargeError,
    TruncatedBodyError,
)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one server grants to strangers; see `limits.py` for each."""

    connections_max: int = limits.CONNECTIONS_MAX
    body_bytes_max: int = limits.BODY_BYTES_MAX
    handshake_timeout_s: float = limits.HANDSHAKE_TIMEOUT_S
    idle_timeout_s: float = limits.IDLE_TIMEOUT_S
    stall_timeout_s: float = limits.STALL_TIMEOUT_S
    bytes_per_s_min: int = limits.BODY_BYTES_PER_S_MIN
    refused_body_drain_s: float = limits.REFUSED_BODY_DRAIN_S
    close_timeout_s: float = limits.CLOSE_TIMEOUT_S

    def piece_timeout_s(self, count: int) -> float:
        """Return the longest that so many bytes may take, in either direction."""
        return self.stall_timeout_s + count / self.bytes_per_s_min


STANDARD = ServerLimits()
"""What a server grants that was not told otherwise."""


NOTHING = memoryview(b"")


class HttpBody:
    """A `transport.Body` over aiohttp's stream.

    Raises:
        MalformedError: The request does not announce the length of its body.
        TooLargeError: It announces more than is granted.
    """

    def __init__(self, request: web.BaseRequest, granted: ServerLimits) -> None:
        if "Transfer-Encoding" in request.headers:
            raise MalformedError("announce the length of the body in Content-Length")
        self.length = request.content_length or 0
        if self.length > granted.body_bytes_max:
            raise TooLargeError("the body", size=self.length, limit=granted.body_bytes_max)
        self.remaining = self.length
        self._granted = granted
        self._stream = request.content
        self._ahead = NOTHING  # received and not read yet

    async def read_into(self, view: memoryview) -> None:
        """Fill the view exactly; see `transport.Body`."""
        if len(view) > self.remaining:
            raise TruncatedBodyError(f"the body ends {len(view) - self.remaining} bytes early")
        timeout_s = self._granted.piece_timeout_s(len(view))
        filled = 0
        try:
            async with asyncio.timeout(timeout_s):
                while filled < len(view):
                    if not self._ahead:
                        # Not `read(count)`: the stream would make room for as much as that.
                        self._ahead = memoryview(await self._stream.readany())
                    data = self._ahead[: len(view) - filled]
                    if not data:
                        raise TruncatedBodyError(f"the body ends {self.remaining} bytes early")
                    view[filled : filled + len(data)] = data
                    filled += len(data)
                    self.remaining -= len(data)
                    # A view without bytes would keep the record it is of until the next one.
                    self._ahead = self._ahead[len(data) :] or NOTHING
                    data = NOTHING
        except TimeoutError as error:
            raise StalledBodyError(
                f"the body came too slowly: {filled} of {len(view)} bytes in {timeout_s:.1f} s"
            ) from error
        except (web.RequestPayloadError, OSError) as error:
            raise TruncatedBodyError("the connection broke within the body") from error

    async def read(self, limit: int) -> bytes:
        """Read all that remains; see `transport.Body`."""
        if self.remaining > limit:
            raise TooLargeError("the body", size=self.remaining, limit=limit)
        data = bytearray(self.remaining)
        await self.read_into(memoryview(data))
        return bytes(data)


async def drain(stream: StreamReader, drain_s: float) -> None:
    """Drop the rest of a body for a while: closing at once could lose the reply on its way."""
    try:
        async with asyncio.timeout(drain_s):
            while await stream.readany():
                pass
    except (TimeoutError, web.RequestPayloadError, OSError):
        pass
