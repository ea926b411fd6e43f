"""One coordinator process: it opens everything, campaigns, leads or stands by, and closes.

Wiring only. When it leads and when it stands by is `coordinator.duty`.
"""

import asyncio
import logging
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from pliska.coordinator import free_memory
from pliska.coordinator.announcement import LEADER, STANDBY, Announcement
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.duty import Duty
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.identity import Identity, load_identity
from pliska.coordinator.means import Means
from pliska.coordinator.open_files import raise_file_limit
from pliska.coordinator.rounds.round_state import Phase
from pliska.coordinator.server import Server
from pliska.coordinator.storage.address import open_storage
from pliska.coordinator.training.job_check import check_job
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.wire.http_body import ServerLimits
from pliska.coordinator.wire.http_server import HttpServer
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.tls import self_signed, server_context
from pliska.locks import SystemClock

log = logging.getLogger(__name__)

THREADS = 32
"""Waiting for the store, hashing and aggregating each take one while they last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """How one coordinator process runs.

    Attributes:
        name: Its name among the coordinators of the job.
        store: Address of the coordination store.
        storage: Address of the storage for log, checkpoints and models: this
            coordinator's own, or one that several share.
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
        self._duty: Duty | None = None
        self._announcement: Announcement | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End `run` soon, as after SIGTERM: resign, close, return."""
        self._is_stopped = True
        if self._duty is not None:
            self._duty.stop()
        if self._announcement is not None:
            self._announcement.drain()

    def status(self) -> Mapping[str, Any]:
        """Return what this coordinator knows, ready for JSON."""
        own = {"coordinator": self._options.name, "job": self._job.name}
        if self._duty is None:
            return {**own, "role": "standby"}
        return {**own, "storage": self._options.storage, **self._duty.status()}

    async def run(self) -> Phase | None:
        """Serve until the job ends or `stop` is called.

        Returns:
            How the job ended, or None after `stop`.

        Raises:
            JobFileError: The job cannot run as it is written.
            CoordinatorError, LockError, DiscoveryError: What could not be opened.
        """
        free_memory.keep_large_pieces_apart()
        connections_max = raise_file_limit(self._job.rounds.workers)
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
            return await self._serve(means, identity, connections_max)
        finally:
            await asyncio.to_thread(directory.backend.close)

    async def _serve(self, means: Means, identity: Identity, connections_max: int) -> Phase | None:
        advertised = self._options.advertise or self._options.host
        certificate = self_signed([advertised], datetime.now(UTC))
        http = HttpServer(
            self._server.handle,
            server_context(certificate),
            self._options.host,
            self._options.port,
            ServerLimits(connections_max=connections_max),
            on_refusal=self._server.count,
        )
        await http.start()
        endpoint = Endpoint(
            name=self._options.name,
            host=advertised,
            port=http.port,
            certificate=certificate.certificate_pem,
            key_id=identity.key_id,
        )
        log.info("coordinator=%s address=%s:%d", self._options.name, advertised, http.port)
        backend, lease_s = means.directory.backend, self._options.session_timeout_s
        try:
            self._announcement = Announcement(backend, self._job.name, endpoint, lease_s)
            self._duty = Duty(
                means=means,
                endpoint=endpoint,
                session_timeout_s=self._options.session_timeout_s,
                clock=self._clock,
                server=self._server,
                show_leads=self._show_leads,
            )
            if self._is_stopped:
                self._duty.stop()
            return await self._duty.run()
        finally:
            self._duty = None
            if self._announcement is not None:
                await asyncio.to_thread(self._announcement.end)
            await http.close()

    def _show_leads(self, leads: bool) -> None:
        if self._announcement is not None:
            self._announcement.show(LEADER if leads else STANDBY)


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
