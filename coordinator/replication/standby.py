"""A coordinator that does not lead: it keeps what the leader commits, on disk and in memory.

It follows the tip in the store: each committed round is applied to a
model in memory, so that it can lead from there at once. Before that, the leader
sends it each entry, which it has on disk before it says so. What it lacks it
fetches from any other coordinator. Runs on one event loop, works in threads.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import CoordinatorError, StorageError
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.checkpoint_writer import CheckpointWriter
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.horizon import read_horizon
from pliska.coordinator.records.kept_job import KeptJob
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.replication.backfill import Backfill
from pliska.coordinator.replication.following import Lead, Place, place_of, refuse_entry
from pliska.coordinator.replication.probe import shares_storage
from pliska.coordinator.replication.receiving import receive_entry, receive_record
from pliska.coordinator.replication.recovery import ORIGIN, Warm, committed, recover
from pliska.coordinator.replication.sources import Sources
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.training_state import tensor_bytes
from pliska.coordinator.wire import Body, RefusedError, Reply, ReplyCode
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.thread import in_thread
from pliska.locks import LockError, Record, StoreError

log = logging.getLogger(__name__)

WATCH_S = 1.0
"""How long one wait for a new commit lasts before it is begun anew."""
RETRY_S_MIN, RETRY_S_MAX = 0.25, 8.0
"""Pause after something went wrong; twice as long each time until it goes well again."""
RECEIVING_MAX = 2
"""Entries received at once: a leader's, and one that a leader before it left unfinished."""


@dataclass(frozen=True, slots=True)
class StandbyMeans:
    """What a standby works with.

    Attributes:
        sources: The other coordinators.
        spared: Versions of checkpoints that somebody is reading here.
    """

    job: Job
    directory: JobDirectory
    storage: Storage
    sources: Sources
    spared: Callable[[], Collection[int]]


class Standby:
    """What one coordinator holds of a job while it does not lead."""

    def __init__(self, means: StandbyMeans) -> None:
        """Begin with nothing in memory; `run` reads what is on disk."""
        self._means = means
        self._archive = Archive(means.storage, means.job)
        self._checkpoints = CheckpointWriter(
            self._archive.checkpoints, lambda: None, self._after_checkpoint
        )
        self._dimension: int | None = None
        self._warm: Warm | None = None
        self._head: Commit | None = None
        self._held: dict[bytes, Commit] = {}
        self._saved = 0
        self._backfill: Backfill | None = None
        self._receiving = asyncio.Semaphore(RECEIVING_MAX)
        self._stepping = asyncio.Lock()
        self._shares_storage = False
        self._reason = "begins"

    async def run(self) -> None:
        """Follow until cancelled; whatever goes wrong is told and tried again."""
        retry_s = RETRY_S_MIN
        try:
            await in_thread(self._begin)
            while True:
                try:
                    await self._follow()
                    retry_s = RETRY_S_MIN
                except (CoordinatorError, StoreError) as error:
                    self._say(str(error))
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, RETRY_S_MAX)
        finally:
            await in_thread(self._close)

    def take_over(self) -> Warm | None:
        """Return the model for who leads now. `run` has ended before."""
        warm, self._warm = self._warm, None
        return warm

    def status(self) -> dict[str, Any]:
        """Return what it holds, ready for JSON."""
        version = self._head.record.version if self._head else 0
        return {"version": version, "reason": self._reason, "shares_storage": self._shares_storage}

    async def standing(self, epoch: int, probe: str) -> Mapping[str, Any]:
        """Say up to which version all is on this disk that a leader need not send.

        Args:
            epoch: Of the leader that asks.
            probe: See `probe`.
        """
        self._shares_storage = await asyncio.to_thread(
            shares_storage, self._means.storage, self._means.job.name, epoch, probe
        )
        place = self._reached(epoch)
        return {
            "version": place.version,
            "digest": place.digest.hex(),
            "shares_storage": self._shares_storage,
            "reason": self._reason,
        }

    async def receive(self, body: Body) -> Reply:
        """Take in an entry that a leader sends; ACCEPTED: it is on this disk."""
        try:
            async with self._receiving:
                return await self._receive(body)
        except RefusedError as error:
            return Reply.to_refusal(error)
        except StoreError as error:
            return Reply(code=ReplyCode.BUSY, reason=f"the store cannot be read: {error}")
        except StorageError as error:
            return Reply(code=ReplyCode.BUSY, reason=f"it cannot be stored: {error}")

    async def parameters(self, digest: bytes) -> bytes | None:
        """Return a copy of the parameters, if those in memory have this digest."""
        async with self._stepping:
            warm = self._warm
            if warm is None or self._head is None or place_of(self._head) != warm.place:
                return None
            if self._head.record.parameters_digest != digest:
                return None
            return await in_thread(lambda: bytes(tensor_bytes(warm.model.parameters())))

    def _begin(self) -> None:
        KeptJob(self._means.storage, self._means.job.name).write(self._means.job)
        model = TrainingModel.build(self._means.job)
        self._dimension = model.dimension
        self._warm = Warm(model, ORIGIN)
        self._saved = max(self._archive.pruner.versions(), default=0)

    async def _follow(self) -> None:
        """Reach the version that is committed now, and wait for the next one."""
        directory = self._means.directory
        record = await asyncio.to_thread(directory.commit)
        if record is not None:
            await self._reach(record)
        if self._backfill is not None and not self._backfill.is_done:
            await in_thread(self._backfill.step)
        key = directory.commit_key
        after = record.modified if record else (await self._revision(key))
        wait_s = WATCH_S if self._backfill is None or self._backfill.is_done else 0.0
        await asyncio.to_thread(directory.backend.wait_for_change, key, after, wait_s)

    async def _reach(self, record: Record) -> None:
        means = self._means
        tip = await asyncio.to_thread(
            Tip.verified, record.value, means.job.name, means.directory.signer_key
        )
        if self._head is not None and self._head.digest == tip.digest:
            return
        head = self._held.get(tip.digest)
        if head is None:
            head = await in_thread(committed, tip, means.storage, means.sources)
        async with self._stepping:
            await in_thread(self._advance, head)
        self._head = head
        newer = {d: c for d, c in self._held.items() if c.record.version > head.record.version}
        self._held = {head.digest: head, **newer}
        self._say("follows")
        if self._backfill is None:
            self._backfill = Backfill(self._archive.log, self._means.sources, place_of(head))
        await in_thread(self._save_when_due, head)

    def _advance(self, head: Commit) -> None:
        """Bring the model to a commit. Sets the model itself: the caller may be cancelled."""
        warm, self._warm = self._warm, None
        means = self._means
        recovered = recover(means.job, head, means.storage, means.sources, warm)
        for reason in recovered.skipped:
            log.warning("job=%s skipped=%s", means.job.name, reason)
        self._warm = Warm(recovered.model, place_of(head))

    def _save_when_due(self, head: Commit) -> None:
        """Begin a checkpoint of a version that is due, unless the leader's is ours too."""
        every, version = self._means.job.checkpoint.every, head.record.version
        is_due = version // every > self._saved // every or any(
            each.version > self._saved for each in head.record.undone
        )
        if not is_due or self._shares_storage or self._warm is None:
            return
        self._saved = version
        place = self._archive.checkpoints.place(version, head.digest)
        if place not in self._archive.checkpoints.places():
            checkpoint = Checkpoint(version, head.digest, head.record.state_digest)
            self._checkpoints.save(checkpoint, self._warm.model.export_state())

    def _after_checkpoint(self, _checkpoint: Checkpoint) -> None:
        """Clear this storage up to the horizon. Runs in the writer's thread."""
        if self._head is None:
            return
        try:
            horizon = read_horizon(self._means.directory)
        except (CoordinatorError, LockError) as error:
            log.warning("job=%s reason=%s", self._means.job.name, f"nothing is pruned: {error}")
        else:
            self._archive.pruner.prune(self._head, horizon, self._means.spared())

    async def _receive(self, body: Body) -> Reply:
        directory = self._means.directory
        commit = await receive_record(body, self._means.job.name, directory.signer_key)
        refusal = refuse_entry(commit, await asyncio.to_thread(self._lead), self._held)
        if refusal is not None:
            return Reply(code=refusal.code, reason=refusal.reason)
        if self._dimension is None:
            return Reply(code=ReplyCode.BUSY, reason="has only begun")
        entry = await receive_entry(body, commit, self._dimension)
        # Once more: another one may lead since the aggregate began to come.
        refusal = refuse_entry(commit, await asyncio.to_thread(self._lead), self._held)
        if refusal is not None:
            return Reply(code=refusal.code, reason=refusal.reason)
        await in_thread(self._archive.log.write, commit, entry.aggregate, entry.annex)
        self._held[commit.digest] = commit
        return Reply(code=ReplyCode.ACCEPTED, version=commit.record.version)

    def _reached(self, epoch: int) -> Place:
        """Return the newest place of which everything is held, as far as this leader sent it."""
        newest = self._head
        for commit in self._held.values():
            is_of_leader = commit.record.epoch == epoch
            if is_of_leader and (newest is None or commit.record.version > newest.record.version):
                newest = commit
        return place_of(newest) if newest else ORIGIN

    def _lead(self) -> Lead | None:
        leader = self._means.directory.leader()
        return Lead(leader.epoch, leader.endpoint.key_id) if leader else None

    async def _revision(self, key: str) -> Any:
        return (await asyncio.to_thread(self._means.directory.backend.list, key)).revision

    def _say(self, reason: str) -> None:
        if reason != self._reason:
            log.info("job=%s standby=%s", self._means.job.name, reason)
        self._reason = reason

    def _close(self) -> None:
        with contextlib.suppress(CoordinatorError):
            self._checkpoints.close()
