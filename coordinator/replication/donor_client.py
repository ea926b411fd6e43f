"""Visits one coordinator and reads what it has of a job; what a standby and a joining worker use.

It proves the caller's key once and again when the token's time is over. It
repeats nothing else: `wire.download` and `donors` know other donors. What it
returns is not checked here, but for ranges that are not what was asked for.
"""

import asyncio
from collections.abc import Iterable

from pliska.coordinator import routes
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.wire import (
    PROTOCOL,
    Buffer,
    ClientResponse,
    Reply,
    ReplyCode,
    ReplyLostError,
    Resource,
    Signer,
    TransportError,
    Visit,
    WireError,
)
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.tls import client_context

IDLE_TIMEOUT_S = 5.0
"""A donor from which nothing comes for so long is given up; never because much is to come."""
CONTENT_BYTES_MAX = 64 * 2**20
"""The largest response that is taken as a whole."""


class DonorRefusedError(TransportError):
    """A donor answered that it will not or cannot give what was asked for."""


class DonorClient:
    """A visitor of one coordinator. Belongs to one event loop."""

    def __init__(self, endpoint: Endpoint, job: str, signer: Signer) -> None:
        """Prepare to connect; nothing is sent yet.

        Args:
            endpoint: Where it listens.
            job: What is asked for.
            signer: An enrolled key.
        """
        self.endpoint = endpoint
        self.name = endpoint.name
        self._job = job
        self._signer = signer
        self._opened: HttpClient | None = None
        self._token: str | None = None
        self._visiting = asyncio.Lock()

    async def close(self) -> None:
        """Close its connections."""
        if self._opened is not None:
            await self._opened.close()

    async def read(self, resource: Resource, offset: int, into: memoryview) -> None:
        """Fill `into` with a part of a resource; see `wire.download.Donor`.

        Raises:
            WireError: The donor does not have it, or it did not come.
        """
        bounds = {"range": f"bytes={offset}-{offset + len(into) - 1}"}
        if not into:
            return
        response = await self._request("GET", resource.path, headers=bounds, into=into)
        if len(response.body) != len(into):
            raise ReplyLostError(f"{len(response.body)} bytes came, not {len(into)}")

    async def get(self, path: str) -> bytes:
        """Read something small as a whole.

        Raises:
            WireError: The donor does not have it, or it did not come.
        """
        return bytes((await self._request("GET", path)).body)

    async def post(self, path: str, body: Iterable[Buffer], timeout_s: float) -> Reply:
        """Send something; return the reply, whatever it says.

        Args:
            path: Below the job's.
            body: Buffers that do not change until this returns.
            timeout_s: The longest time without progress, the wait for the reply included.

        Raises:
            WireError: No reply came.
        """
        pieces = list(body)
        response = await self._send("POST", path, {}, pieces, None, timeout_s)
        reply = Reply.from_json(response.body)
        if reply.code is not ReplyCode.NOT_MEMBER:
            return reply
        await self._visit(renewing=self._token)
        response = await self._send("POST", path, {}, pieces, None, timeout_s)
        return Reply.from_json(response.body)

    async def _request(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        into: memoryview | None = None,
    ) -> ClientResponse:
        """Ask for something, with another visit where the token's time is over."""
        response = await self._send(method, path, headers or {}, (), into, IDLE_TIMEOUT_S)
        if response.status == _NOT_MEMBER_STATUS:
            await self._visit(renewing=self._token)
            response = await self._send(method, path, headers or {}, (), into, IDLE_TIMEOUT_S)
        if not 200 <= response.status < 300:
            raise DonorRefusedError(_reason(response))
        return response

    async def _send(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: Iterable[Buffer],
        into: memoryview | None,
        timeout_s: float,
    ) -> ClientResponse:
        if self._token is None:
            await self._visit(renewing=None)
        return await self._http().request(
            method,
            routes.job_path(self._job, path),
            headers={**headers, routes.TOKEN: self._token or ""},
            body=body,
            timeout_s=timeout_s,
            into=into,
        )

    async def _visit(self, renewing: str | None) -> None:
        """Prove the key, unless somebody else did since the token was `renewing`."""
        async with self._visiting:
            if self._token != renewing:
                return
            asked = await self._open(routes.VISIT_CHALLENGE, b"")
            visit = Visit(
                protocol=PROTOCOL,
                job=self._job,
                key_id=self._signer.key_id,
                nonce=_nonce(asked.headers.get(routes.NONCE, "")),
            )
            admitted = await self._open(routes.VISIT, self._signer.sign(visit).to_bytes())
            self._token = admitted.headers.get(routes.TOKEN, "")

    def _http(self) -> HttpClient:
        """Return the connections; a certificate that cannot be read is this request's failure."""
        if self._opened is None:
            context = client_context(self.endpoint.certificate)
            address = self.endpoint.address
            self._opened = HttpClient(address, context, reply_bytes_max=CONTENT_BYTES_MAX)
        return self._opened

    async def _open(self, path: str, body: bytes) -> ClientResponse:
        response = await self._http().request(
            "POST", routes.job_path(self._job, path), body=body, timeout_s=IDLE_TIMEOUT_S
        )
        if response.status != 200:
            raise DonorRefusedError(_reason(response))
        return response


_NOT_MEMBER_STATUS = 403


def _nonce(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise DonorRefusedError(f"its challenge is {text[:64]!r}") from error


def _reason(response: ClientResponse) -> str:
    try:
        reply = Reply.from_json(response.body)
    except WireError:
        return f"it answered {response.status}"
    return f"{reply.code}, {reply.reason}"
