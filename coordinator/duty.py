"""One coordinator's duty: it stands by, leads, and stands by again, until the job ends.

Each turn at leading has a session in the store of its own. Whatever the turn, it
gives what it has of the job to whoever lacks it. Life cycle only: what a leader
does is `leading`, what a standby does is `standby`.
"""

import asyncio
import contextlib
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import DamagedStateError, RecoveryError
from pliska.coordinator.leading import Leading
from pliska.coordinator.means import Means
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.replication.donor import Donor
from pliska.coordinator.replication.donors import Donors
from pliska.coordinator.replication.probe import MARK_BYTES, leave_mark
from pliska.coordinator.replication.recovery import Warm
from pliska.coordinator.replication.replicas import Replicas
from pliska.coordinator.replication.standby import Standby, StandbyMeans
from pliska.coordinator.rounds.round_state import Phase
from pliska.coordinator.server import Server
from pliska.coordinator.visitors import Visitors
from pliska.locks import (
    AcquireCancelledError,
    Clock,
    Election,
    Leadership,
    LockError,
    Session,
    SessionLostError,
    StoreUnavailableError,
)

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Pause before the store is tried again after it did not answer, and before one that could not
lead wants to lead again."""


class Duty:
    """The duty of one coordinator in one job."""

    def __init__(
        self,
        *,
        means: Means,
        endpoint: Endpoint,
        session_timeout_s: float,
        clock: Clock,
        server: Server,
        show_leads: Callable[[bool], None],
    ) -> None:
        """Prepare; nothing is opened before `run`. On the event loop.

        Args:
            means: What a leadership works with.
            endpoint: Where this coordinator listens.
            session_timeout_s: A leader that is silent for so long is replaced.
            clock: Time of the session.
            server: Is told what this coordinator is at the moment.
            show_leads: Called when it begins (True) and ends (False) to lead.
        """
        job, keyring = means.job, means.directory.keyring
        self._endpoint = endpoint
        self._session_timeout_s = session_timeout_s
        self._clock = clock
        self._server = server
        self._show_leads = show_leads
        self._archive = Archive(means.storage, job)
        visitors = Visitors(job.name, keyring, means.now, secrets.token_bytes)
        donor = Donor(self._archive, visitors, self._find_parameters, means.now)
        server.give(job.name, donor)
        self._means = replace(means, spared=donor.spared)
        loop = asyncio.get_running_loop()
        self._donors = Donors(means.directory, endpoint, means.signer, loop)
        self._leading: Leading | None = None
        self._standby: Standby | None = None
        self._following: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._campaign_cancelled = threading.Event()
        self._unfit: str | None = None

    def stop(self) -> None:
        """End `run` soon."""
        self._stopping.set()
        self._campaign_cancelled.set()
        self._donors.abandon()

    def status(self) -> Mapping[str, Any]:
        """Return what this coordinator is and knows, ready for JSON."""
        if self._leading is not None:
            return {"role": "leader", **self._leading.status()}
        held = self._standby.status() if self._standby is not None else {}
        unfit = {} if self._unfit is None else {"cannot_lead": self._unfit}
        return {"role": "standby", **held, **unfit}

    async def run(self) -> Phase | None:
        """Take turns, in sessions that may be lost, until the job ends.

        Returns:
            How the job ended, or None after `stop`.
        """
        try:
            while not self._stopping.is_set():
                try:
                    ended = await self._turn()
                except SessionLostError as error:
                    log.warning("reason=%s", f"stands by again: {error}")
                except StoreUnavailableError as error:
                    log.warning("reason=%s", f"the store does not answer: {error}")
                    await self._pause(RETRY_S)
                else:
                    if ended is not None:
                        return ended
            return None
        finally:
            await self._end_standby()
            await self._donors.close()

    async def _turn(self) -> Phase | None:
        """Stand by until it is this coordinator's turn, and lead."""
        self._stand_by()
        backend = self._means.directory.backend
        session = await asyncio.to_thread(
            Session.open, backend, self._session_timeout_s, self._clock
        )
        try:
            name = self._endpoint.name
            election = Election(
                session, self._means.directory.election, name, self._endpoint.to_bytes()
            )
            log.info("coordinator=%s reason=%s", name, "stands by")
            leadership = await self._campaign(election)
            return None if leadership is None else await self._lead(leadership)
        except (RecoveryError, DamagedStateError) as error:
            await self._yield_to_others(str(error))
            return None
        finally:
            await asyncio.to_thread(session.close)

    async def _yield_to_others(self, reason: str) -> None:
        """Let another coordinator lead, which may have what is missing here.

        One that is alone keeps its place for a moment, so that people see it and why.
        """
        if reason != self._unfit:
            log.error("coordinator=%s reason=%s", self._endpoint.name, reason)
        self._unfit = reason
        self._stand_by()
        if len(await asyncio.to_thread(self._means.directory.coordinators)) < 2:
            await self._pause(RETRY_S)

    async def _campaign(self, election: Election) -> Leadership | None:
        """Wait to lead; None after `stop`."""
        with contextlib.suppress(AcquireCancelledError):
            return await asyncio.to_thread(election.campaign, None, self._campaign_cancelled)
        return None

    def _stand_by(self) -> None:
        """Follow the committed rounds, unless that is being done already."""
        if self._standby is not None:
            return
        means = self._means
        self._standby = Standby(
            StandbyMeans(means.job, means.directory, means.storage, self._donors, means.spared)
        )
        self._following = asyncio.create_task(self._standby.run())
        self._server.stand_by(self._standby)

    async def _end_standby(self) -> Warm | None:
        """Follow no longer; return the model that the standby has in memory."""
        standby, following = self._standby, self._following
        self._standby = self._following = None
        self._server.stand_by(None)
        if standby is None or following is None:
            return None
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return standby.take_over()

    async def _lead(self, leadership: Leadership) -> Phase | None:
        """Lead until the job ends, the leadership is lost, or `stop` is called.

        Returns:
            How the job ended; None when this coordinator only stopped leading.
        """
        leading = await self._begin(leadership, await self._end_standby())
        name = self._endpoint.name
        log.info("coordinator=%s epoch=%d reason=%s", name, leading.epoch, "leads")
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
            leading.hurry()
            for task in (running, stopping, lost):
                task.cancel()
            await asyncio.gather(running, stopping, lost, return_exceptions=True)
            with contextlib.suppress(LockError):
                await asyncio.to_thread(leadership.resign)

    async def _begin(self, leadership: Leadership, warm: Warm | None) -> Leading:
        """Recover the committed state, with what the others have where it is missing here."""
        means, loop = self._means, asyncio.get_running_loop()
        mark = secrets.token_bytes(MARK_BYTES)
        probe = await asyncio.to_thread(
            leave_mark, means.storage, means.job.name, leadership.epoch, mark
        )
        copies = Replicas(
            directory=means.directory,
            own=self._endpoint,
            signer=means.signer,
            leadership=leadership,
            update_log=self._archive.log,
            wanted=means.job.durable.replicas,
            probe=probe,
            now=means.now,
            loop=loop,
        )
        begin = partial(Leading, means, leadership, warm=warm, sources=self._donors, copies=copies)
        return await asyncio.to_thread(begin)

    def _take_role(self, leading: Leading | None) -> None:
        """Lead, or no longer, and show it."""
        self._leading = leading
        self._unfit = None
        self._server.lead(leading)
        self._show_leads(leading is not None)

    async def _find_parameters(self, digest: bytes) -> bytes | None:
        """Find the parameters of this digest in memory."""
        if self._leading is not None:
            published = self._leading.publisher.published
            return published.parameters if published.digest == digest else None
        return await self._standby.parameters(digest) if self._standby is not None else None

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


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
