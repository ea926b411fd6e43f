"""A worker: it downloads a version, computes a gradient, signs it and sends it, until the end.

It outlives coordinators: when the leader is gone it looks for the next one in
the store, joins again and sends the same gradient, signed for the new epoch. A
retry never counts twice, because the coordinator knows the gradient's root.

It works alike in every mode: one gradient for each version that it downloads,
the newest one there is, on the batch that the leader leases to it. What the mode
changes is when the next version comes, and how old a gradient may be; for the
present mode it signs again.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from pliska.coordinator.client import (
    CoordinatorClient,
    JobDirectory,
    Leader,
    Membership,
    NothingNewer,
    ProtocolError,
    Version,
)
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import (
    Float32Codec,
    Reply,
    ReplyCode,
    SealedPayload,
    Signer,
    TransportError,
    gradient_frame,
    seal,
)
from pliska.coordinator.wire.thread import in_thread
from pliska.locks import StoreError
from pliska.trainer.base_version import BaseVersion
from pliska.trainer.donation import Donation
from pliska.trainer.errors import WorkerRefusedError
from pliska.trainer.gradient_source import Assignment, GradientSource
from pliska.trainer.heartbeat import keep_alive, poll_s
from pliska.trainer.incarnation import Incarnation
from pliska.trainer.leader_view import LeaderView, following
from pliska.trainer.until import until

log = logging.getLogger(__name__)

LEADER_PAUSE_S = 0.1
"""Pause before a leader is tried again."""

NO_LEASE = "waits for a batch: its round is not open yet, or it is in quarantine"

SETTLED = frozenset(
    {ReplyCode.ACCEPTED, ReplyCode.DUPLICATE, ReplyCode.COMMITTED, ReplyCode.STALE_ROUND}
)
"""Nothing is left to do for this round but to wait for the next version."""
REJOIN = frozenset({ReplyCode.NOT_MEMBER, ReplyCode.STALE_EPOCH})
"""The leader is another one, or has forgotten this worker."""
TRY_TO_JOIN_AGAIN = frozenset({ReplyCode.STALE_EPOCH, ReplyCode.BUSY, ReplyCode.REPLAY})
"""The leader is another one, or has no room or memory for this hello just now."""
AGAIN = frozenset({ReplyCode.BUSY, ReplyCode.DIGEST, ReplyCode.REPLAY})
"""The same gradient may be sent again."""
ANEW = frozenset({ReplyCode.WRONG_BASE, ReplyCode.FUTURE_ROUND})
"""The gradient belongs to another version than the leader's: download that one."""
UNUSABLE = frozenset({ReplyCode.NONFINITE, ReplyCode.EQUIVOCATION, ReplyCode.QUARANTINED})
"""This gradient does not count; the next one may."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How patient a worker is.

    Attributes:
        leader_timeout_s: It gives up when nobody leads the job for so long.
    """

    leader_timeout_s: float = 120.0


class Worker:
    """One worker of one job. Belongs to one event loop."""

    def __init__(
        self,
        *,
        name: str,
        directory: JobDirectory,
        computation: Computation,
        source: GradientSource,
        signer: Signer,
        options: WorkerOptions,
        donation: Donation | None = None,
    ) -> None:
        """Prepare a new incarnation; nothing is sent before `run`.

        Args:
            name: As it is enrolled in the keyring.
            directory: Finds the leader.
            computation: Holds the parameters that gradients are computed at.
            source: Makes the gradients, from `computation`.
            signer: The worker's key.
            options: How patient it is.
            donation: Where it gives its parameters to others; None where it does not.
        """
        self.name = name
        self._directory = directory
        self._source = source
        self._signer = signer
        self._options = options
        self._donation = donation
        self._incarnation = Incarnation(name, computation, signer)
        self._rounds = computation.job.rounds.count
        self._mode_epoch = 0
        self._base = BaseVersion(computation, directory, signer, donation)
        self._lease: int | None = None
        self._sealed: SealedPayload | None = None

    async def run(self) -> int:
        """Work until the job is finished.

        Returns:
            The last version.

        Raises:
            NoCoordinatorError: Nobody led the job for too long.
            WorkerRefusedError: The coordinator will not take this worker's gradients.
        """
        timeout_s = self._options.leader_timeout_s
        async with following(self._directory) as leaders:
            while (leader := await leaders.find(self._rounds, timeout_s)) is not None:
                try:
                    final = await self._follow(leader, leaders)
                except (TransportError, ProtocolError, StoreError) as error:
                    log.warning("epoch=%d reason=%s", leader.epoch, error)
                else:
                    if final is not None:
                        return final.version
                await asyncio.sleep(LEADER_PAUSE_S)
        return self._rounds

    async def _follow(self, leader: Leader, leaders: LeaderView) -> Version | None:
        """Work for one leader, until the store says that another one leads.

        Returns:
            The last version; None when the leader must be looked for again.
        """
        async with CoordinatorClient(leader.endpoint, self._directory.job) as client:
            return await until(self._join(client, leader.epoch), leaders.superseded(leader))

    async def _join(self, client: CoordinatorClient, epoch: int) -> Version | None:
        joined = await client.join(
            self.name,
            self._incarnation.id,
            self._signer,
            self._incarnation.manifest_digest,
            None if self._donation is None else self._donation.endpoint,
        )
        if isinstance(joined, Reply):
            if joined.code not in TRY_TO_JOIN_AGAIN:
                raise self._refused(joined)
            return None
        if joined.epoch != epoch:
            return None  # the coordinator there leads no more, or again
        log.info("worker=%s epoch=%d reason=%s", self.name, joined.epoch, "joined")
        return await until(self._train(client, joined), keep_alive(client, joined))

    async def _train(self, client: CoordinatorClient, joined: Membership) -> Version | None:
        """Send gradients until the last version is there, or the leader is another one."""
        wait_s = 0.0
        while True:
            news = await self._download(client, joined, wait_s)
            if isinstance(news, Reply):
                if news.code not in REJOIN:
                    raise self._refused(news)
                return None
            if isinstance(news, Version) and news.is_final:
                with contextlib.suppress(TransportError, ProtocolError):
                    await client.leave(joined)
                return news
            if self._lease is None:
                log.info("worker=%s reason=%s", self.name, NO_LEASE)
                if isinstance(news, NothingNewer):
                    await asyncio.sleep(LEADER_PAUSE_S)
                wait_s = poll_s(joined)
                continue
            reply = await self._deliver(client, joined)
            if reply.code in REJOIN:
                return None
            wait_s = poll_s(joined) if self._waits_after(reply) else 0.0

    async def _download(
        self, client: CoordinatorClient, joined: Membership, wait_s: float
    ) -> Version | NothingNewer | Reply:
        """Fetch the version to compute on, if there is a newer one than the base, and a lease."""
        lacks_lease = self._lease is None
        news = await self._base.renew(client, joined, wait_s, wants_lease=lacks_lease)
        if isinstance(news, Version):
            self._lease, self._sealed = news.lease, None
            self._mode_epoch = news.mode_epoch
        elif isinstance(news, NothingNewer) and lacks_lease:
            self._lease = news.lease
        return news

    async def _deliver(self, client: CoordinatorClient, joined: Membership) -> Reply:
        """Send the gradient for the base as often as the leader asks for it."""
        while True:
            reply = await self._push(client, joined)
            if reply.code is ReplyCode.STALE_MODE and reply.mode_epoch is not None:
                log.info("worker=%s mode=%s reason=%s", self.name, reply.mode, reply.reason)
                self._mode_epoch = reply.mode_epoch
            elif reply.code is ReplyCode.STALE_LEASE and reply.lease is not None:
                log.info("worker=%s lease=%d reason=%s", self.name, reply.lease, reply.reason)
                self._lease, self._sealed = reply.lease, None
            elif reply.code in AGAIN:
                await asyncio.sleep(reply.retry_after_s or LEADER_PAUSE_S)
            else:
                return reply

    async def _push(self, client: CoordinatorClient, joined: Membership) -> Reply:
        """Send the gradient for the base, computing it unless it was sent before."""
        base, lease = self._base.version, self._lease
        if base is None or lease is None:
            raise ProtocolError("the leader has published no version, or leased no batch")
        if self._sealed is None:
            members = await client.members(joined) if self._source.needs_members else {}
            leases = {worker: each for worker, each in members.items() if each is not None}
            assignment = Assignment(base.version + 1, lease, leases)
            # Not left alone when another leader cuts in: the parameters are its to read.
            vector = await in_thread(self._source.gradient, assignment)
            self._sealed = await in_thread(seal, Float32Codec(), vector.numpy())
        signed = self._incarnation.sign(base, lease, joined.epoch, self._mode_epoch, self._sealed)
        return await client.push(gradient_frame(signed, self._sealed))

    def _waits_after(self, reply: Reply) -> bool:
        """Decide whether to wait for a newer version after a gradient was answered.

        Raises:
            WorkerRefusedError: Sending it again is of no use.
        """
        if reply.code in ANEW:
            self._base.forget()
            return False
        if reply.code is ReplyCode.STALE_LEASE:
            self._lease = self._sealed = None
            return False
        if reply.code in UNUSABLE:
            log.warning("worker=%s code=%s reason=%s", self.name, reply.code, reply.reason)
            return True
        if reply.code in SETTLED:
            return True
        raise self._refused(reply)

    def _refused(self, reply: Reply) -> WorkerRefusedError:
        return WorkerRefusedError(
            f"the coordinator refuses worker {self.name!r}: {reply.code}, {reply.reason}"
        )
