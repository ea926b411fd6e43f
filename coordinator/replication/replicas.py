"""The standbys of one leader: it sends each of them every entry, and knows who has which.

One task for each standby that the store names. It asks how far the standby is,
and from there on sends entry after entry; one that lags fetches by itself what
it lacks, and is asked again. Implements `ledger.Copies`. When enough of them have
an entry is decided by `replication`.
"""

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from pliska.coordinator import routes
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import CoordinatorError, MissingObjectError, NotReplicatedError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.log_entry import LogEntry
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.backlog import Backlog
from pliska.coordinator.replication.donor_client import DonorClient, DonorRefusedError
from pliska.coordinator.replication.replication import Replica, ReplicaState, Verdict, Wanted, judge
from pliska.coordinator.wire import ReplyCode, Signer, WireError
from pliska.discovery import Role
from pliska.locks import Leadership, StoreError

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often the store is asked which standbys are there."""
ASK_AGAIN_S = 0.1
"""Pause before a standby that lags or does not answer is asked again."""
SHARED_AGAIN_S = 5.0
"""Pause before a standby that shares the storage is asked again."""
SEND_TIMEOUT_S = 5.0
"""A standby from which nothing comes for so long while an entry is sent is taken for gone."""
DISK_BYTES_PER_S_MIN = 20 * 2**20
"""A standby may take so much longer to answer as its disk needs at this pace."""
SLOW_S = 1.0
"""A commit that waits longer than this for standbys is told in the log."""
LAST_WAIT_S = 2.0
"""How long a coordinator that is told to end still waits for standbys."""
WAKE_S = 0.1
"""How often whoever waits for standbys looks whether it still leads, and what time it is."""


class Replicas:
    """The standbys of one leadership."""

    def __init__(
        self,
        *,
        directory: JobDirectory,
        own: Endpoint,
        signer: Signer,
        leadership: Leadership,
        update_log: UpdateLog,
        wanted: Wanted,
        probe: str,
        now: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Begin with nobody; `run` looks for them.

        Args:
            directory: Names the standbys.
            own: This coordinator.
            signer: Its key.
            leadership: For as long as it lasts.
            update_log: Has the older entries.
            wanted: `durable.replicas`.
            probe: From `probe.leave_mark`.
            now: Seconds on a monotonic clock.
            loop: Where `run` runs.
        """
        self._directory = directory
        self._own = own
        self._signer = signer
        self._leadership = leadership
        self._wanted = wanted
        self._probe = probe
        self._now = now
        self._loop = loop
        self._backlog = Backlog(update_log)
        self._replicas: dict[Endpoint, Replica] = {}
        self._following: dict[Endpoint, asyncio.Task[None]] = {}
        self._change = asyncio.Event()
        self._ends_at = math.inf
        self._verdict = Verdict(True, 0, "nothing was committed yet")

    async def run(self, head: Commit | None) -> None:
        """Keep a task for each standby until cancelled.

        Args:
            head: The record that the store names when the leadership begins.
        """
        if head is not None:
            self._backlog.know(head)
        try:
            while True:
                with contextlib.suppress(StoreError):
                    await self._look()
                await asyncio.sleep(LOOK_S)
        finally:
            tasks = list(self._following.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def send(self, entry: LogEntry) -> None:
        """Begin to send an entry to all; see `ledger.Copies`. From any thread."""
        self._loop.call_soon_threadsafe(self._offer, entry)

    def wait(self, commit: Commit) -> None:
        """Block until enough standbys have an entry; see `ledger.Copies`. From a thread.

        Raises:
            GrantLostError: This coordinator no longer leads.
            NotReplicatedError: `hurry` was called, and they still do not.
        """
        waiting = asyncio.run_coroutine_threadsafe(self._enough(commit), self._loop)
        try:
            waiting.result()
        finally:
            waiting.cancel()

    async def caught_up(self) -> None:
        """Wait for all that are enrolled, however many are wanted; see `ledger.Copies`.

        One that is away may be about to come back, and finds nobody else to fetch from.
        """
        enrolled = await asyncio.to_thread(self._directory.keyring.list, Role.COORDINATOR)
        expected = {each.key_id for each in enrolled if each.is_active} - {self._signer.key_id}
        while not self._have_all(expected):
            await self._changed(LOOK_S)

    def _have_all(self, expected: Collection[str]) -> bool:
        """Whether all that was sent is with everybody who is there, or is expected."""
        lack = {
            endpoint
            for endpoint, each in self._replicas.items()
            if each.state is not ReplicaState.SHARED and each.version < self._backlog.newest
        }
        done = {endpoint.key_id for endpoint in self._replicas.keys() - lack}
        return not lack and done >= {*expected}

    def hurry(self) -> None:
        """Give up waiting in a moment; see `ledger.Copies`."""
        self._ends_at = self._now() + LAST_WAIT_S

    def followed(self) -> list[int]:
        """Return the versions that the standbys have reached. From any thread."""
        replicas = list(self._replicas.values())
        return [each.version for each in replicas if each.state is not ReplicaState.SHARED]

    def status(self) -> dict[str, Any]:
        """Return who has what, ready for JSON."""
        return {
            "wanted": self._wanted,
            "in_force": self._verdict.in_force,
            "reason": self._verdict.reason,
            "standbys": [
                {
                    "coordinator": each.name,
                    "state": each.state.value,
                    "version": each.version,
                    "reason": each.reason,
                }
                for each in self._replicas.values()
            ],
        }

    def _offer(self, entry: LogEntry) -> None:
        self._backlog.add(entry)
        self._wake()

    def _wake(self) -> None:
        """Let everybody look again who waits for a change."""
        self._change.set()
        self._change = asyncio.Event()

    async def _changed(self, timeout_s: float) -> None:
        """Wait for a change, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._change.wait()

    async def _enough(self, commit: Commit) -> None:
        """Return when enough standbys have an entry."""
        began_at, told = self._now(), ""
        while True:
            self._leadership.check()
            replicas = tuple(self._replicas.values())
            verdict = judge(commit.record.version, replicas, self._wanted, self._now())
            is_slow = self._now() - began_at >= SLOW_S
            if is_slow and not verdict.is_enough and verdict.reason != told:
                told = verdict.reason
                log.warning("epoch=%d reason=%s", self._leadership.epoch, told)
            self._verdict = verdict
            if verdict.is_enough:
                return
            if self._now() >= self._ends_at:
                raise NotReplicatedError(f"it ends before it is committed: {verdict.reason}")
            await self._changed(WAKE_S)

    async def _look(self) -> None:
        """Begin to follow standbys that came, and forget those that went."""
        found = await asyncio.to_thread(self._directory.coordinators)
        others = {each for each in found if each.certificate != self._own.certificate}
        for gone in self._following.keys() - others:
            self._following.pop(gone).cancel()
            del self._replicas[gone]
            self._wake()
        for endpoint in others - self._following.keys():
            self._replicas[endpoint] = Replica(endpoint.name, ReplicaState.AWAY, 0, self._now())
            self._following[endpoint] = asyncio.create_task(self._serve(endpoint))

    async def _serve(self, endpoint: Endpoint) -> None:
        """Send entries to one standby until it is gone."""
        client = DonorClient(endpoint, self._directory.job, self._signer)
        try:
            while True:
                pause_s = ASK_AGAIN_S
                try:
                    pause_s = await self._keep_up(endpoint, client)
                except (WireError, CoordinatorError) as error:
                    self._note(endpoint, ReplicaState.AWAY, reason=str(error))
                await asyncio.sleep(pause_s)
        finally:
            await client.close()

    async def _keep_up(self, endpoint: Endpoint, client: DonorClient) -> float:
        """Find out how far a standby is and send it what follows.

        Returns:
            How long to wait before it is asked again: it refused an entry, lags,
            or shares the storage.

        Raises:
            WireError: It does not answer.
            CoordinatorError: An entry that it needs cannot be read.
        """
        version, digest, standing = await self._ask(client)
        if standing.get("shares_storage"):
            self._note(endpoint, ReplicaState.SHARED, version)
            return SHARED_AGAIN_S
        if not self._backlog.has(version, digest):
            self._note(endpoint, ReplicaState.LAGGING, version, str(standing.get("reason")))
            return ASK_AGAIN_S
        self._note(endpoint, ReplicaState.FOLLOWING, version)
        while True:
            try:
                entry = await self._backlog.after(version)
            except MissingObjectError as error:
                # It may have gone on from a checkpoint meanwhile: ask it again.
                self._note(endpoint, ReplicaState.LAGGING, version, str(error))
                return ASK_AGAIN_S
            reply = await client.post(routes.ENTRIES, entry.pieces(), _patience_s(entry))
            if reply.code is not ReplyCode.ACCEPTED:
                self._note(endpoint, ReplicaState.LAGGING, version, reply.reason)
                return ASK_AGAIN_S
            version = entry.commit.record.version
            self._note(endpoint, ReplicaState.FOLLOWING, version)

    async def _ask(self, client: DonorClient) -> tuple[int, bytes, Mapping[str, Any]]:
        query = f"{routes.EPOCH_NUMBER}={self._leadership.epoch}&{routes.PROBE}={self._probe}"
        content = await client.get(f"{routes.FOLLOWING}?{query}")
        try:
            standing = json.loads(content)
            return int(standing["version"]), bytes.fromhex(standing["digest"]), standing
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DonorRefusedError(f"its standing cannot be read: {error}") from error

    def _note(
        self, endpoint: Endpoint, state: ReplicaState, version: int | None = None, reason: str = ""
    ) -> None:
        before = self._replicas.get(endpoint)
        if before is None:
            return
        follows_or_did = ReplicaState.FOLLOWING in (state, before.state)
        after = replace(
            before,
            state=state,
            version=before.version if version is None else version,
            followed_at=self._now() if follows_or_did else before.followed_at,
            reason=reason,
        )
        if state is not before.state:
            log.info("standby=%s state=%s reason=%s", before.name, state.value, reason or "-")
        self._replicas[endpoint] = after
        self._wake()


def _patience_s(entry: LogEntry) -> float:
    """Return how long a standby may take to take in an entry without a sign of progress."""
    return SEND_TIMEOUT_S + entry.aggregate.nbytes / DISK_BYTES_PER_S_MIN
