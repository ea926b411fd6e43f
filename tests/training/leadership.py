"""One leadership of the small job in this process, and its workers moved by hand.

The real parts over a store in memory: only sockets and other processes are missing.
"""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.identity import load_identity
from pliska.coordinator.leading import Leading
from pliska.coordinator.means import Means
from pliska.coordinator.members import Member
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.replication.donor import Donor
from pliska.coordinator.rounds.round_state import Phase
from pliska.coordinator.server import Server
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.visitors import Visitors
from pliska.coordinator.wire import (
    EMPTY,
    Float32Codec,
    GradientHeader,
    Hello,
    Reply,
    SealedPayload,
    Signer,
    TooLargeError,
    TruncatedBodyError,
    gradient_frame,
    seal,
)
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.messages import PROTOCOL
from pliska.coordinator.wire.tls import self_signed, server_context
from pliska.discovery import KeyConflictError, Role, key_id, public_bytes
from pliska.locks import Election, Leadership, Session, connect

PATIENCE_S = 20.0
LIFE = b"1" * 16
SECOND_LIFE = b"2" * 16


class ArrivingBody:
    """A body that arrives as far as `arrive` was told."""

    def __init__(self, data: bytes, arrived: int | None = None) -> None:
        self._data = data
        self._arrived = len(data) if arrived is None else arrived
        self._offset = 0
        self._more = asyncio.Event()
        self.is_waiting = asyncio.Event()

    @property
    def length(self) -> int:
        return len(self._data)

    @property
    def remaining(self) -> int:
        return len(self._data) - self._offset

    def arrive(self) -> None:
        """Let the rest arrive."""
        self._arrived = len(self._data)
        self._more.set()

    async def read_into(self, view: memoryview) -> None:
        if len(view) > self.remaining:
            raise TruncatedBodyError("the body ends early")
        while self._offset + len(view) > self._arrived:
            self.is_waiting.set()
            await self._more.wait()
        view[:] = self._data[self._offset : self._offset + len(view)]
        self._offset += len(view)

    async def read(self, limit: int) -> bytes:
        if self.remaining > limit:
            raise TooLargeError("the body", size=self.remaining, limit=limit)
        data = bytearray(self.remaining)
        await self.read_into(memoryview(data))
        return bytes(data)


class Lead:
    """A coordinator that leads; `run` starts its rounds."""

    def __init__(self, job: Job, folder: Path, address: str = "memory:", name: str = "c1") -> None:
        self.job = job
        self.name = name
        self.folder = folder
        self.directory = JobDirectory(connect(address), job.name)
        self.directory.publish(job)
        self.storage = LocalStorage(folder / "storage")
        self.identity = load_identity(folder / "coordinator.pem", self.directory.keyring)
        self.session = Session.open(self.directory.backend)
        self.keys: dict[str, Ed25519PrivateKey] = {}
        self.seq = 0

    def means(self, worker_lease_s: float = 60.0) -> Means:
        return Means(
            job=self.job,
            directory=self.directory,
            storage=self.storage,
            signer=self.identity.signer,
            evaluator=Evaluator(self.job),
            worker_lease_s=worker_lease_s,
            now=time.monotonic,
        )

    def campaign(self, endpoint: bytes = b"") -> Leadership:
        election = Election(self.session, self.directory.election, self.name, endpoint)
        self.grant = election.campaign(timeout_s=5.0)
        return self.grant

    def begin(self, endpoint: bytes = b"", worker_lease_s: float = 60.0) -> Leading:
        """Win the election and recover the committed state."""
        self.leading = Leading(self.means(worker_lease_s), self.campaign(endpoint))
        return self.leading

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[Phase]"]:
        """Run the rounds meanwhile."""
        task = asyncio.create_task(self.leading.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def serving(self, worker_lease_s: float = 60.0) -> AsyncIterator[Server]:
        """Listen on a port with TLS; the election carries the address. Call it before `begin`."""
        server = Server(lambda: {"coordinator": self.name, **self.leading.status()})
        visitors = Visitors(
            self.job.name, self.directory.keyring, time.monotonic, secrets.token_bytes
        )
        archive = Archive(self.storage, self.job)
        server.give(self.job.name, Donor(archive, visitors, self._parameters, time.monotonic))
        certificate = self_signed(["127.0.0.1"], datetime.now(UTC))
        http = HttpServer(server.handle, server_context(certificate), on_refusal=server.count)
        await http.start()
        endpoint = Endpoint(
            self.name, "127.0.0.1", http.port, certificate.certificate_pem, self.identity.key_id
        )
        try:
            await asyncio.to_thread(self.begin, endpoint.to_bytes(), worker_lease_s)
            server.lead(self.leading)
            yield server
        finally:
            server.lead(None)
            await self.leading.publisher.close()
            await http.close()

    async def _parameters(self, digest: bytes) -> bytes | None:
        published = self.leading.publisher.published
        return published.parameters if published.digest == digest else None

    def close(self) -> None:
        self.session.close()
        self.directory.backend.close()

    def signer(self, worker: str) -> Signer:
        """Return the signer of a worker, which has one key in all of a test's leaderships."""
        if worker not in self.keys:
            seed = hashlib.sha256(worker.encode()).digest()
            self.keys[worker] = Ed25519PrivateKey.from_private_bytes(seed)
            public = public_bytes(self.keys[worker])
            with contextlib.suppress(KeyConflictError):  # it may be revoked
                self.directory.keyring.enroll(worker, Role.WORKER, public)
        return Signer(self.keys[worker], key_id(public_bytes(self.keys[worker])))

    def hello(self, worker: str, /, **changes: Any) -> bytes:
        """Sign a hello that is right but for the changes."""
        signer = self.signer(worker)
        right: dict[str, Any] = {
            "protocol": PROTOCOL,
            "job": self.job.name,
            "worker": worker,
            "incarnation": LIFE,
            "key_id": signer.key_id,
            "nonce": self.leading.joining.challenge(),
            "manifest_digest": EMPTY,
        }
        return signer.sign(Hello(**{**right, **changes})).to_bytes()

    async def join(self, *workers: str, incarnation: bytes = LIFE) -> Member:
        """Take workers in; return the last one's membership."""
        for worker in workers:
            joined = await self.leading.joining.hello(self.hello(worker, incarnation=incarnation))
            assert isinstance(joined, Member), joined
        return joined

    def payload(self, value: float = 1.0) -> SealedPayload:
        d = self.leading.intake.manifest.dimension
        return seal(Float32Codec(), np.full(d, value, dtype=np.float32))

    def lease(self, worker: str) -> int:
        """Return the lease that a gradient of this worker has to name now."""
        driver = self.leading.intake.driver
        slot = driver.state.slot_of(worker)
        held = driver.lease_of(worker)
        return slot.offer.lease if slot is not None and held is None else held or 0

    def frame(self, worker: str, value: float = 1.0, /, **changes: Any) -> bytes:
        """Sign a gradient for the round at hand that is right but for the changes."""
        sealed = self.payload(value)
        acceptable = self.leading.intake.driver.acceptable()
        self.seq += 1
        right: dict[str, Any] = {
            "job": self.job.name,
            "epoch": acceptable.epoch,
            "round": acceptable.round,
            "mode_epoch": acceptable.mode_epoch,
            "base_version": acceptable.base_version,
            "base_digest": acceptable.base_digest,
            "worker": worker,
            "incarnation": LIFE,
            "key_id": self.signer(worker).key_id,
            "seq": self.seq,
            "nonce": secrets.token_bytes(16),
            "issued_at": 0.0,
            "lease": self.lease(worker),
            "n_samples": 8,
            "codec": sealed.codec,
            "manifest_digest": self.leading.intake.manifest.digest,
            "payload_len": sealed.payload_len,
            "chunk_len": sealed.chunk_len,
            "payload_root": sealed.root,
        }
        header = GradientHeader(**{**right, **changes})
        return b"".join(gradient_frame(self.signer(worker).sign(header), sealed))

    async def push(self, worker: str, value: float = 1.0, /, **changes: Any) -> Reply:
        """Send a gradient whose numbers all have this value."""
        return await self.receive(self.frame(worker, value, **changes))

    async def receive(self, frame: bytes) -> Reply:
        return await self.leading.intake.receive(ArrivingBody(frame))

    async def status(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the status is as wanted, and return it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                status = self.leading.status()
                if holds(status):
                    return status
                await asyncio.sleep(0.005)

    async def committed(self, version: int) -> None:
        """Wait until this version is published."""
        async with asyncio.timeout(PATIENCE_S):
            # A recall sends away who waits, before there is a version.
            while await self.leading.publisher.newer_than(version - 1, PATIENCE_S) is None:
                pass
