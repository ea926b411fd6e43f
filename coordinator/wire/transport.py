"""The seam between the protocol and what carries it.

`http_server.py` and `http_client.py` implement it over TLS. What a request
means is the handler's matter; how it travels is not. Headers are written in
lower case on this side.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeAlias

from pliska.coordinator.wire.replies import Reply

Buffer: TypeAlias = bytes | bytearray | memoryview


class Body(Protocol):
    """The body of a request, as it arrives. One reader."""

    @property
    def length(self) -> int:
        """How many bytes were announced in all; a body without that is refused."""
        ...

    @property
    def remaining(self) -> int:
        """How many of them were not read yet."""
        ...

    async def read_into(self, view: memoryview) -> None:
        """Fill the view, of single bytes, exactly.

        Raises:
            TruncatedBodyError: Fewer bytes remain, the sender left, or it came too slowly.
        """
        ...

    async def read(self, limit: int) -> bytes:
        """Read all that remains.

        Raises:
            TooLargeError: More than `limit` bytes remain; nothing was read.
            TruncatedBodyError: The sender left, or it came too slowly.
        """
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a handler sees it.

    Attributes:
        path: Without the query.
        query: Of a name that comes twice, the last.
        headers: Names in lower case; of a name that comes twice, the last.
        remote: The address it came from; for logs only.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Body
    remote: str


@dataclass(frozen=True, slots=True)
class Response:
    """What a handler answers.

    Attributes:
        body: Must not change until it is sent, which may be long after the return.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview | None = None

    @classmethod
    def of_reply(cls, reply: Reply) -> Self:
        """Answer with a reply in JSON, under the HTTP status of its code."""
        headers = {"content-type": "application/json"}
        if reply.retry_after_s is not None:
            headers["retry-after"] = str(max(1, round(reply.retry_after_s)))
        return cls(reply.http_status, headers, reply.to_json())


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
"""Answers one request. A `RefusedError` that it raises becomes the reply of that code."""


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """What came back.

    Attributes:
        headers: Names in lower case.
        body: The filled part of `into` where the caller gave one and the status is 2xx.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | memoryview


class Server(Protocol):
    """Serves requests until it is closed."""

    async def start(self) -> None:
        """Begin to listen."""
        ...

    @property
    def address(self) -> str:
        """The `host:port` it listens on, once started."""
        ...

    async def close(self) -> None:
        """Stop listening, let running handlers end, and close every connection."""
        ...


class Client(Protocol):
    """Sends requests to one server. Safe for many tasks of one event loop."""

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
        """Send one request and wait for its response.

        Args:
            method: The HTTP method.
            path: With its query, if any; percent-encoded by the caller.
            headers: Beside those that the transport sets.
            body: One buffer or several, sent one after the other without a copy; they must
                not change before this returns.
            timeout_s: The longest time without progress: one piece sent, one piece received,
                or the wait for the response.
            into: Memory to receive the body of a 2xx response in.

        Raises:
            UnreachableError: No connection; nothing was sent.
            NoProgressError: Nothing moved for `timeout_s`.
            ReplyLostError: The connection broke on the way.
            ReplySizeError: The response is larger than `into`, or than a reply may be.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
