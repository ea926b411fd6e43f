"""An enrolled worker that may send anything: well signed lies, broken frames, noise."""

import asyncio
import re
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import numpy as np
from training.site import Site

from pliska.coordinator import routes
from pliska.coordinator.client import CoordinatorClient, Membership, NothingNewer, Version
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import (
    Float32Codec,
    GradientHeader,
    Hello,
    Reply,
    ReplyCode,
    SealedPayload,
    Signed,
    Signer,
    gradient_frame,
    seal,
)
from pliska.coordinator.wire.http_client import HttpClient
from pliska.coordinator.wire.messages import PROTOCOL
from pliska.coordinator.wire.tls import client_context

Case = tuple[str, Callable[[], Awaitable[Reply]], ReplyCode]
"""What is sent, how, and the reply that it gets."""
NAME = "mallory"
OTHER = bytes(range(32))
FIRST_LIFE, SECOND_LIFE = b"1" * 16, b"2" * 16


class Mallory:
    """A member that can send anything to the coordinator that leads."""

    def __init__(self, site: Site, client: CoordinatorClient, http: HttpClient) -> None:
        self.site = site
        self.client = client
        self.http = http
        self.computation = Computation(site.job)
        self.signer: Signer = site.signer(NAME)
        self.base: Version | None = None
        self.lease = 0
        self.seq = 0
        self.got: Counter[str] = Counter()

    async def join(self, life: bytes = FIRST_LIFE) -> Membership:
        joined = await self.client.join(NAME, life, self.signer, self.computation.manifest().digest)
        assert isinstance(joined, Membership)
        return joined

    async def next_round(self, joined: Membership) -> None:
        """Wait for the version that the next round is computed on, and its lease."""
        after = -1 if self.base is None else self.base.version
        landing = memoryview(np.empty(self.computation.dimension, "<f4")).cast("B")
        base = None
        while base is None:
            news = await self.client.model(joined, after, 20.0, landing)
            base = news if isinstance(news, Version) else None
        lease, after = base.lease, base.version
        while lease is None:
            news = await self.client.model(joined, after, 20.0, landing, wants_lease=True)
            assert isinstance(news, NothingNewer)
            lease = news.lease
        self.base, self.lease = base, lease

    def payload(self, first: float = 1.0) -> SealedPayload:
        vector = np.ones(self.computation.dimension, dtype=np.float32)
        vector[0] = first
        return seal(Float32Codec(), vector)

    def header(self, sealed: SealedPayload | None = None, **changes: Any) -> GradientHeader:
        """Make a header that is right but for the changes."""
        sealed = sealed or self.payload()
        assert self.base is not None
        self.seq += 1
        right: dict[str, Any] = {
            "job": self.site.job.name,
            "epoch": self.base.epoch,
            "round": self.base.version + 1,
            "mode_epoch": 0,
            "base_version": self.base.version,
            "base_digest": self.base.digest,
            "worker": NAME,
            "incarnation": FIRST_LIFE,
            "key_id": self.signer.key_id,
            "seq": self.seq,
            "nonce": self.seq.to_bytes(16),
            "issued_at": 0.0,
            "lease": self.lease,
            "n_samples": 10**9,
            "codec": sealed.codec,
            "manifest_digest": self.computation.manifest().digest,
            "payload_len": sealed.payload_len,
            "chunk_len": sealed.chunk_len,
            "payload_root": sealed.root,
        }
        return GradientHeader(**{**right, **changes})

    def frame(self, sealed: SealedPayload | None = None, **changes: Any) -> bytes:
        """Sign a header and put its payload behind it."""
        sealed = sealed or self.payload()
        return b"".join(gradient_frame(self.signer.sign(self.header(sealed, **changes)), sealed))

    async def push(self, *pieces: bytes) -> Reply:
        return await self.post("gradients", b"".join(pieces))

    async def push_changed(self, **changes: Any) -> Reply:
        return await self.push(self.frame(**changes))

    async def post(self, action: str, body: bytes, job: str = "toy") -> Reply:
        return await self.call("POST", routes.job_path(job, action), body)

    async def call(self, method: str, path: str, body: bytes = b"", token: str = "") -> Reply:
        response = await self.http.request(
            method, path, headers={routes.TOKEN: token}, body=body, timeout_s=10.0
        )
        return Reply.from_json(response.body)

    async def hello(self, signer: Signer, nonce: bytes | None = None, **changes: Any) -> bytes:
        """Sign a hello, in answer to a fresh challenge unless a nonce is given."""
        if nonce is None:
            challenge = await self.http.request(
                "POST", routes.job_path("toy", "challenge"), timeout_s=10.0
            )
            nonce = bytes.fromhex(challenge.headers[routes.NONCE])
        return signer.sign(hello_of(signer, nonce, **changes)).to_bytes()

    async def raw(self, *pieces: bytes, tls: bool = True) -> bytes:
        """Send bytes over a connection of its own; return the body of the answer, if any."""
        endpoint = self.client.endpoint
        context = client_context(endpoint.certificate) if tls else None
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
        try:
            writer.write(b"".join(pieces))
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            return await reader.readexactly(int(length.group(1)) if length else 0)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return b""
        finally:
            writer.transport.abort()

    async def raw_post(self, announced: int) -> Reply:
        """Announce a body and send none of it."""
        path = routes.job_path("toy", "gradients")
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {announced}\r\n\r\n"
        return Reply.from_json(await self.raw(head.encode()))

    async def expect(self, cases: Iterable[Case]) -> None:
        """Send each, compare the reply, and remember what was to be counted."""
        replies = [(what, (await send()).code, code) for what, send, code in cases]
        assert [case[:2] for case in replies] == [(what, code) for what, _, code in replies]
        self.got.update(code.value for _, code, _ in replies)

    async def counted(self) -> None:
        """Wait until the coordinator has counted all of it."""
        await self.site.status(lambda now: not self.got - Counter(now.get("replies", {})))


def envelope(signed: Signed) -> bytes:
    """Write a signed message as the head of a frame."""
    content = signed.to_bytes()
    return struct.pack(">I", len(content)) + content


def hello_of(signer: Signer, nonce: bytes, **changes: Any) -> Hello:
    """Make a hello that is right but for the changes."""
    right: dict[str, Any] = {
        "protocol": PROTOCOL,
        "job": "toy",
        "worker": NAME,
        "incarnation": SECOND_LIFE,
        "key_id": signer.key_id,
        "nonce": nonce,
    }
    return Hello(**{**right, **changes})
