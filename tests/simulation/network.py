"""The transport between simulated processes: requests that are late, lost, or cut short.

Implements both sides of `pliska.coordinator.wire.transport` in memory. What
goes wrong with a request is drawn from the run's seed; links between two
processes can be cut for a while.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from urllib.parse import parse_qsl, urlsplit

from simulation.virtual_loop import CURRENT, Process

from pliska.coordinator.wire import Reply, ReplyCode
from pliska.coordinator.wire.errors import (
    NoProgressError,
    RefusedError,
    ReplyLostError,
    ReplySizeError,
    TooLargeError,
    TruncatedBodyError,
    UnreachableError,
)
from pliska.coordinator.wire.transport import (
    Buffer,
    ClientResponse,
    Handler,
    Request,
    Response,
)

FIRST_PORT = 20_000
REPLY_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network does to requests.

    Attributes:
        delay_s: Each way takes up to this.
        loss: Share of requests that never arrive.
        reply_loss: Share of requests that are served, but the reply is lost.
        cut: Share of bodies of which the end is missing.
    """

    delay_s: float = 0.005
    loss: float = 0.0
    reply_loss: float = 0.0
    cut: float = 0.0


@dataclass(slots=True)
class Network:
    """All links."""

    lots: Random
    weather: Weather = Weather()
    servers: dict[str, "SimulatedServer"] = field(default_factory=dict)
    _cut_until: dict[frozenset[str], float] = field(default_factory=dict)
    _ports: int = FIRST_PORT

    def listen(self, host: str, server: "SimulatedServer") -> int:
        """Give a server an address of its own."""
        self._ports += 1
        self.servers[f"{host}:{self._ports}"] = server
        return self._ports

    def cut(self, one: Process, other: Process, seconds: float) -> None:
        """Let nothing through between two processes for a while."""
        self._cut_until[frozenset((one.name, other.name))] = one.loop.time() + seconds

    def calm(self) -> None:
        """Let everything through again."""
        self.weather = Weather()
        self._cut_until.clear()

    def is_cut(self, one: Process, other: Process) -> bool:
        """Whether nothing gets through between them now."""
        return self._cut_until.get(frozenset((one.name, other.name)), 0.0) > one.loop.time()

    async def travel(self) -> None:
        """Take the time of one way."""
        await asyncio.sleep(self.lots.uniform(0.0, self.weather.delay_s))


def process_here() -> Process:
    """Return the process whose step this is."""
    process = CURRENT.get()
    if process is None:
        raise RuntimeError("only processes use the network")
    return process


class SimulatedServer:
    """Twin of `http_server.HttpServer`."""

    def __init__(self, network: Network, handler: Handler, host: str) -> None:
        self.process = process_here()
        self.handler = handler
        self._network = network
        self._host = host
        self.port = 0

    @property
    def address(self) -> str:
        """The `host:port` it listens on."""
        return f"{self._host}:{self.port}"

    async def start(self) -> None:
        """Begin to listen."""
        self.port = self._network.listen(self._host, self)

    async def close(self) -> None:
        """Stop listening."""
        self._network.servers.pop(self.address, None)


class SimulatedBody:
    """A request's body; its end may be missing."""

    def __init__(self, content: bytes, missing: int, network: Network) -> None:
        self.length = len(content)
        self.remaining = len(content)
        self._content = content
        self._arriving = len(content) - missing
        self._network = network

    async def read_into(self, view: memoryview) -> None:
        """Fill the view exactly; see `transport.Body`."""
        await self._network.travel()
        start = self.length - self.remaining
        if start + len(view) > self._arriving:
            raise TruncatedBodyError("the connection broke within the body")
        view[:] = self._content[start : start + len(view)]
        self.remaining -= len(view)

    async def read(self, limit: int) -> bytes:
        """Read all that remains; see `transport.Body`."""
        if self.remaining > limit:
            raise TooLargeError("the body", size=self.remaining, limit=limit)
        data = bytearray(self.remaining)
        await self.read_into(memoryview(data))
        return bytes(data)


class SimulatedClient:
    """Twin of `http_client.HttpClient`."""

    def __init__(self, network: Network, address: str) -> None:
        self.address = address
        self._network = network
        self._process = process_here()

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
        network, lots, weather = self._network, self._network.lots, self._network.weather
        buffers = [body] if isinstance(body, bytes | bytearray | memoryview) else body
        content = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)
        await network.travel()
        server = network.servers.get(self.address)
        if server is None or server.process.is_dead:
            raise UnreachableError(f"nobody listens at {self.address}")
        if network.is_cut(self._process, server.process) or lots.random() < weather.loss:
            await asyncio.sleep(timeout_s)
            raise NoProgressError(f"{method} {path}: nothing moved for {timeout_s:g} s")
        missing = lots.randrange(1, len(content)) if _cuts(lots, weather, content) else 0
        url = urlsplit(path)
        request = Request(
            method=method,
            path=url.path,
            query=dict(parse_qsl(url.query)),
            headers={**(headers or {}), "content-length": str(len(content))},
            body=SimulatedBody(content, missing, network),
            remote=self._process.name,
        )
        serving = server.process.start(_serve(server.handler, request))
        response = await self._answer(serving, server, timeout_s)
        await network.travel()
        lost = lots.random() < weather.reply_loss
        if missing or lost or network.is_cut(self._process, server.process):
            raise ReplyLostError(f"{method} {path}: the connection broke")
        return _received(response, into)

    async def close(self) -> None:
        """Close every connection."""

    async def _answer(
        self, serving: "asyncio.Task[Response]", server: SimulatedServer, timeout_s: float
    ) -> Response:
        """Wait for the answer of a process that may die or stop meanwhile."""
        waited_s, step_s = 0.0, 0.05
        while not serving.done():
            if server.process.is_dead:
                raise ReplyLostError("the server died")
            if waited_s >= timeout_s:
                raise NoProgressError(f"nothing moved for {timeout_s:g} s")
            await asyncio.wait({serving}, timeout=step_s)
            waited_s += step_s
        return serving.result()


def _cuts(lots: Random, weather: Weather, content: bytes) -> bool:
    return len(content) > 1 and lots.random() < weather.cut


async def _serve(handler: Handler, request: Request) -> Response:
    """Answer as `http_server` does."""
    try:
        return await handler(request)
    except RefusedError as error:
        return Response.of_reply(Reply(code=error.code, reason=str(error)))
    except Exception as error:  # noqa: BLE001 - a fault of the handler is a reply, as over HTTP
        return Response.of_reply(Reply(code=ReplyCode.BUSY, reason=repr(error)))


def _received(response: Response, into: memoryview | None) -> ClientResponse:
    body = bytes(response.body or b"")
    if into is None or not 200 <= response.status < 300:
        if len(body) > REPLY_BYTES_MAX:
            raise ReplySizeError(f"the response has more than {REPLY_BYTES_MAX} bytes")
        return ClientResponse(response.status, response.headers, body)
    view = into.cast("B")
    if len(body) > len(view):
        raise ReplySizeError(f"the response has more than {len(view)} bytes")
    view[: len(body)] = body
    return ClientResponse(response.status, response.headers, view[: len(body)])
