"""One coordinator process: it opens everything, campaigns, leads or stands by, and closes.

Wiring and life cycle only. What it does while it leads is `coordinator.leading`.
"""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from pliska.coordinator.announcement import LEADER, STANDBY, Announcement
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import ListenError
from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.identity import Identity, load_identity
from pliska.coordinator.job_check import check_job
from pliska.coordinator.leading import Leading, Means
from pliska.coordinator.model import TrainingModel
from pliska.coordinator.round_state import Phase
from pliska.coordinator.server import Server
from pliska.coordinator.storage import open_storage
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.tls import self_signed, server_context
from pliska.locks import (
    AcquireCancelledError,
    Election,
    Leadership,
    LockError,
    Session,
    SessionLostError,
    StoreUnavailableError,
    SystemClock,
)

log = logging.getLogger(__name__)

THREADS = 32
"""Waiting for the store, hashing and aggregating each take one while they last."""
RETRY_S = 1.0
"""Pause before the store is tried again after it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """How one coordinator process runs.

    Attributes:
        name: Its name among the coordinators of the job.
        store: Address of the coordination store.
        storage: Address of the storage for log, checkpoints and models; all
            coordinators of a job share it.
        key: File of its private key; made where it is missing.
        host: Address that it listens on.
        advertise: Address that others reach it by; `host` where None.
        port: TCP port; 0 for any free one.
        session_timeout_s: A leader that the store does not hear from for so
            long is replaced. Longer tolerates longer pauses; shorter takes over
            sooner from a machine that is gone.
        worker_lease_s: A worker that is silent for so long is not waited for.
    """

    name: str
    store: str
    storage: str
    key: Path
    host: str = "127.0.0.1"
    advertise: str | None = None
    port: int = 0
    session_timeout_s: float = 5.0
    worker_lease_s: float = 10.0


class Daemon:
    """A coordinator of one job."""

    def __init__(self, job: Job, options: CoordinatorOptions) -> None:
        """Prepare; nothing is opened before `run`."""
        self._job = job
        self._options = options
        self._clock = SystemClock()
        self._server = Server(self.status)
        self._leading: Leading | None = None
        self._announcement: Announcement | None = None
        self._stopping = asyncio.Event()
        self._campaign_cancelled = threading.Event()

    def stop(self) -> None:
        """End `run` soon, as after SIGTERM: resign, close, return."""
        self._stopping.set()
        self._campaign_cancelled.set()
        if self._announcement is not None:
            self._announcement.drain()

    def status(self) -> Mapping[str, Any]:
        """Return what this coordinator knows, ready for JSON."""
        own = {"coordinator": self._options.name, "job": self._job.name}
        if self._leading is None:
            return {**own, "role": "standby"}
        return {**own, "role": "leader", "storage": self._options.storage, **self._leading.status()}

    async def run(self) -> Phase | None:
        """Serve until the job ends or `stop` is called.

        Returns:
            How the job ended, or None after `stop`.

        Raises:
            JobFileError: The job cannot run as it is written.
            CoordinatorError, LockError, DiscoveryError: What could not be opened.
        """
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="pliska"))
        await asyncio.to_thread(check_job, self._job)
        await asyncio.to_thread(_rehearse, self._job)
        directory = await asyncio.to_thread(JobDirectory.at, self._options.store, self._job.name)
        try:
            await asyncio.to_thread(directory.publish, self._job)
            identity = await asyncio.to_thread(load_identity, self._options.key, directory.keyring)
            means = Means(
                job=self._job,
                directory=directory,
                storage=await asyncio.to_thread(open_storage, self._options.storage),
                signer=identity.signer,
                evaluator=await asyncio.to_thread(Evaluator, self._job),
                worker_lease_s=self._options.worker_lease_s,
                now=self._clock.now_s,
            )
            return await self._serve(means, identity)
        finally:
            await asyncio.to_thread(directory.backend.close)

    async def _serve(self, means: Means, identity: Identity) -> Phase | None:
        advertised = self._options.advertise or self._options.host
        certificate = self_signed([advertised], datetime.now(UTC))
        http = HttpServer(
            self._server.handle,
            server_context(certificate),
            self._options.host,
            self._options.port,
            on_refusal=self._server.count,
        )
        try:
            await http.start()
        except OSError as error:
            raise ListenError(
                f"cannot listen on {self._options.host} port {self._options.port}: "
                f"{error.strerror}; name another --host or --port"
            ) from error
        endpoint = Endpoint(
            coordinator=self._options.name,
            host=advertised,
            port=http.port,
            certificate=certificate.certificate_pem,
            key_id=identity.key_id,
        )
        log.info("coordinator=%s address=%s:%d", self._options.name, advertised, http.port)
        backend, lease_s = means.directory.backend, self._options.session_timeout_s
        try:
            self._announcement = Announcement(backend, self._job.name, endpoint, lease_s)
            return await self._take_turns(means, endpoint)
        finally:
            if self._announcement is not None:
                await asyncio.to_thread(self._announcement.end)
            await http.close()

    async def _take_turns(self, means: Means, endpoint: Endpoint) -> Phase | None:
        """Stand by and lead, in sessions that may be lost, until the job ends."""
        while not self._stopping.is_set():
            try:
                ended = await self._in_session(means, endpoint)
            except SessionLostError as error:
                log.warning("reason=%s", f"stands by again: {error}")
            except StoreUnavailableError as error:
                log.warning("reason=%s", f"the store does not answer: {error}")
                await self._pause(RETRY_S)
            else:
                if ended is not None:
                    return ended
        return None

    async def _in_session(self, means: Means, endpoint: Endpoint) -> Phase | None:
        backend = means.directory.backend
        session = await asyncio.to_thread(
            Session.open, backend, self._options.session_timeout_s, self._clock
        )
        try:
            election = Election(
                session, means.directory.election, self._options.name, endpoint.to_bytes()
            )
            log.info("coordinator=%s reason=%s", self._options.name, "stands by")
            leadership = await self._campaign(election)
            return None if leadership is None else await self._lead(means, leadership)
        finally:
            await asyncio.to_thread(session.close)

    async def _campaign(self, election: Election) -> Leadership | None:
        """Wait to lead; None after `stop`."""
        with contextlib.suppress(AcquireCancelledError):
            return await asyncio.to_thread(election.campaign, None, self._campaign_cancelled)
        return None

    async def _lead(self, means: Means, leadership: Leadership) -> Phase | None:
        """Lead until the job ends, the leadership is lost, or `stop` is called.

        Returns:
            How the job ended; None when this coordinator only stopped leading.
        """
        leading = await asyncio.to_thread(Leading, means, leadership)
        log.info("coordinator=%s epoch=%d reason=%s", self._options.name, leading.epoch, "leads")
        self._take_role(leading)
        running = asyncio.create_task(leading.run())
        stopping = asyncio.create_task(self._stopping.wait())
        lost = asyncio.create_task(_lost(leadership))
        try:
            await asyncio.wait({running, stopping, lost}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return running.result()
            if lost.done():
                leadership.check()
            return None
        finally:
            self._take_role(None)
            for task in (running, stopping, lost):
                task.cancel()
            await asyncio.gather(running, stopping, lost, return_exceptions=True)
            with contextlib.suppress(LockError):
                await asyncio.to_thread(leadership.resign)

    def _take_role(self, leading: Leading | None) -> None:
        """Lead, or stand by, and show it."""
        self._leading = leading
        self._server.lead(leading)
        if self._announcement is not None:
            self._announcement.show(STANDBY if leading is None else LEADER)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


async def run_coordinator(job: Job, options: CoordinatorOptions) -> Phase | None:
    """Run a coordinator until its job ends or the process is told to stop (SIGINT, SIGTERM).

    Returns and raises what `Daemon.run` does.
    """
    daemon = Daemon(job, options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, daemon.stop)
    return await daemon.run()


def _rehearse(job: Job) -> None:
    """Take a step and throw it away: torch loads half of itself for the first one.

    That takes seconds, which a takeover does not have.
    """
    model = TrainingModel.build(job)
    model.apply(torch.zeros(model.dimension))


async def _lost(leadership: Leadership) -> None:
    """Return when the leadership is lost."""
    loop = asyncio.get_running_loop()
    lost = asyncio.Event()
    leadership.on_lost(_waking(loop, lost))
    await lost.wait()


def _waking(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed by then
            loop.call_soon_threadsafe(event.set)

    return wake
