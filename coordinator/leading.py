"""Everything that exists only while this coordinator leads a job.

Built from the committed state when a leadership begins and thrown away when it
ends: nothing of one leadership can leak into the next. `coordinator.daemon`
makes it, runs it, and lets the server answer from it.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pliska.aggregation import GradientBuffer, rule_named
from pliska.coordinator.audit_trail import AuditTrail
from pliska.coordinator.challenges import Challenges
from pliska.coordinator.combiner import Combiner
from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.docket import Docket
from pliska.coordinator.driver import RoundDriver
from pliska.coordinator.errors import CoordinatorError, DamagedStateError
from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.inheritance import (
    first_state,
    inherit_convictions,
    inherit_model,
    inherit_standings,
)
from pliska.coordinator.intake import Intake
from pliska.coordinator.joining import Joining
from pliska.coordinator.measurements import Measurements
from pliska.coordinator.members import Member, Members
from pliska.coordinator.mode_control import ModeControl
from pliska.coordinator.publisher import Publisher
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.checkpoint_writer import CheckpointWriter
from pliska.coordinator.records.committer import Committer
from pliska.coordinator.records.horizon import raise_horizon
from pliska.coordinator.records.kept_job import KeptJob
from pliska.coordinator.records.recent_rounds import read_recent_rounds
from pliska.coordinator.records.retention import horizon_of
from pliska.coordinator.replication.ledger import Copies, Ledger, NoCopies, due
from pliska.coordinator.replication.recovery import Sources, Warm
from pliska.coordinator.rollback_control import RollbackControl
from pliska.coordinator.rounds.round_events import ModeRequested
from pliska.coordinator.rounds.round_state import Phase, RoundOptions
from pliska.coordinator.status import job_status
from pliska.coordinator.stepper import Stepper
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.tally import Tally
from pliska.coordinator.wire import Signer
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.limits import SPARE_MEMBERS
from pliska.coordinator.wire.thread import in_thread
from pliska.discovery import KeyringFormatError
from pliska.locks import Leadership, LockError, StoreError

log = logging.getLogger(__name__)

LINGER_S = 5.0
"""How long a finished job waits for its standbys and workers to fetch what came last."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a leadership works with, whoever leads.

    Attributes:
        worker_lease_s: A worker that is silent for so long is gone.
        now: Seconds on a monotonic clock.
        spared: Versions of checkpoints that somebody is reading here.
    """

    job: Job
    directory: JobDirectory
    storage: Storage
    signer: Signer
    evaluator: Evaluator
    worker_lease_s: float
    now: Callable[[], float]
    spared: Callable[[], Collection[int]] = tuple


class Leading:
    """One leadership of one job."""

    def __init__(
        self,
        means: Means,
        leadership: Leadership,
        *,
        warm: Warm | None = None,
        sources: Sources | None = None,
        copies: Copies | None = None,
    ) -> None:
        """Recover the committed state. Blocks on store, disk and donors: call it in a thread.

        Args:
            means: What it works with.
            leadership: Fences every write.
            warm: The model of a standby.
            sources: The other coordinators, for what this storage lacks.
            copies: The standbys that are sent each entry; None for none.

        Raises:
            RecoveryError: The committed state cannot be rebuilt.
            LockError: The store failed or the leadership is lost.
        """
        job = means.job
        self.job = job.name
        self.epoch = leadership.epoch
        self.members = Members(
            means.worker_lease_s, 2 * job.rounds.workers + SPARE_MEMBERS, secrets.token_bytes
        )
        self.tally = Tally()
        self._means = means
        self._somebody_left = asyncio.Event()
        self._leadership = leadership
        self._archive = Archive(means.storage, job)
        self._checkpoints = CheckpointWriter(
            self._archive.checkpoints, leadership.check, self._after_checkpoint
        )
        KeptJob(means.storage, job.name).write(job)
        self._copies: Copies = copies or NoCopies()
        record = means.directory.commit()
        model, head = inherit_model(job, record, means.directory, means.storage, sources, warm)
        log.info("job=%s epoch=%d version=%d", job.name, self.epoch, model.step)
        committer = Committer(means.directory, leadership, record, means.signer)
        self._head = head
        self._ledger = Ledger(
            self._archive.log,
            self._copies,
            committer,
            head,
            due(job.durable.every, job.checkpoint.every, job.rounds.count),
        )
        self._rollbacks = RollbackControl(
            job,
            means.directory,
            leadership,
            means.storage,
            sources,
            lambda: self._ledger.committed,
            lambda found: self._driver.roll_back(found),  # noqa: PLW0108 - it is made below
        )
        rule = rule_named(job.rule.name, **job.rule.parameters)
        options = RoundOptions.of_job(job, rule, self.members.members_max)
        recent = read_recent_rounds(head, model.parameters_digest(), self._archive.log)
        docket = Docket()
        for conviction, evidence in inherit_convictions(head, means.directory, means.storage):
            docket.convict(conviction, evidence)
        self._stepper = Stepper(
            job=job,
            epoch=leadership.epoch,
            combiner=Combiner(job, rule, options.gatherings),
            model=model,
            head=head,
            recent=recent,
            standings=inherit_standings(head, self._archive.log),
            docket=docket,
            ledger=self._ledger,
            storage=means.storage,
            checkpoints=self._checkpoints,
            signer=means.signer,
            wall_time=time.time,
        )
        state = first_state(job, head, means.directory.mode(job), means.now())
        self._was_finished = state.phase is Phase.FINISHED
        self.publisher = Publisher(self._stepper.publish(self._was_finished))
        self._measurements = Measurements(means.evaluator, self.publisher, job.evaluate.every)
        buffer = GradientBuffer(self.members.members_max, model.dimension)
        self._trail = AuditTrail(job, means.storage, means.signer, docket.convict, docket.note)
        self._driver = RoundDriver(
            state=state,
            options=options,
            stepper=self._stepper,
            buffer=buffer,
            members=self.members,
            publisher=self.publisher,
            trail=self._trail,
            now=means.now,
        )
        self._control = ModeControl(
            job,
            means.directory,
            leadership,
            options.gatherings,
            lambda: self._driver.state,
            lambda setting: self._driver.feed(ModeRequested(setting)),
        )
        self.joining = Joining(
            job=job.name,
            challenges=Challenges(secrets.token_bytes),
            members=self.members,
            keyring=means.directory.keyring,
            manifest=model.manifest(),
            driver=self._driver,
            tally=self.tally,
            now=means.now,
        )
        self.intake = Intake(
            driver=self._driver,
            members=self.members,
            keyring=means.directory.keyring,
            buffer=buffer,
            manifest=model.manifest(),
            signer=means.signer,
            tally=self.tally,
            trail=self._trail,
            now=means.now,
            wall_time=time.time,
        )

    async def run(self) -> Phase:
        """Lead until the job is finished or halted.

        Returns:
            `FINISHED` or `HALTED`.

        Raises:
            LockError: The leadership is lost.
            CoordinatorError: A round could not be made durable.
        """
        evaluation = asyncio.create_task(self._measurements.run())
        controls = [
            asyncio.create_task(self._control.run()),
            asyncio.create_task(self._rollbacks.run()),
        ]
        copying = asyncio.create_task(self._copies.run(self._head))
        try:
            await self._drive(copying)
            if self._driver.state.phase is Phase.FINISHED:
                await evaluation
                await self._linger()
            return self._driver.state.phase
        finally:
            for task in (evaluation, *controls):
                task.cancel()
            await asyncio.wait([evaluation, *controls])
            await self.publisher.close()
            await self._trail.close()
            await in_thread(self._finish_writing)
            copying.cancel()
            await asyncio.wait([copying])

    def hurry(self) -> None:
        """Prepare to end: from now on nothing waits long for standbys."""
        self._copies.hurry()

    async def _drive(self, copying: "asyncio.Task[None]") -> None:
        """Run the rounds for as long as the copies are looked after."""
        driving = asyncio.create_task(self._driver.run())
        try:
            await asyncio.wait({driving, copying}, return_when=asyncio.FIRST_COMPLETED)
            if copying.done():
                copying.result()
            await driving
        finally:
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)

    @property
    def mode_epoch(self) -> int:
        """Of the mode in force."""
        return self._driver.state.setting.mode_epoch

    def lease_of(self, worker: str) -> int | None:
        """Return the lease of a worker's next gradient; None where it has to wait for one."""
        return self._driver.lease_of(worker)

    def leases(self) -> Mapping[str, int]:
        """Return the lease of each worker that has one."""
        return self._driver.leases()

    def heard_from(self, member: Member) -> None:
        """Renew a member's lease."""
        self.members.hear(member.worker, self._means.now())

    def leave(self, member: Member) -> None:
        """Let a member go; no round waits for it any more."""
        self.members.leave(member.worker)
        self._driver.members_changed()
        self._somebody_left.set()

    def status(self) -> dict[str, Any]:
        """Return what there is to know about the job, ready for JSON."""
        return {**self._job_status(), "replicas": dict(self._copies.status())}

    def _job_status(self) -> dict[str, Any]:
        return job_status(
            self._means.job,
            self._stepper,
            self._driver.state,
            self.members,
            self.tally,
            self._measurements.accuracy,
            self._driver.quarantine,
        )

    def _finish_writing(self) -> None:
        """Commit what a leader that still leads leaves behind, and end the writing threads."""
        try:
            if self._leadership.held:
                self._ledger.flush()
        except (LockError, CoordinatorError) as error:
            log.warning("epoch=%d reason=%s", self.epoch, f"the last rounds are lost: {error}")
        finally:
            self._ledger.close()
            self._checkpoints.close()

    def _after_checkpoint(self, _checkpoint: Checkpoint) -> None:
        """Move the horizon, and clear this storage up to it. Runs in the writer's thread."""
        pruner, rollbacks = self._archive.pruner, self._rollbacks
        try:
            with rollbacks.pruning:
                needed = rollbacks.needed  # read before the head, which then has what it lacks
                head = self._ledger.committed
                if head is None:
                    return
                wanted = horizon_of(
                    head.record.version,
                    pruner.versions(),
                    [*self._copies.followed(), *needed],
                    self._archive.retention,
                    head.record.undone,
                )
                reached = raise_horizon(self._means.directory, self._leadership, wanted)
        except (LockError, DamagedStateError) as error:
            log.warning("epoch=%d reason=%s", self.epoch, f"nothing is pruned: {error}")
        else:
            pruner.prune(head, reached, self._means.spared())

    async def _linger(self) -> None:
        """Give standbys time to fetch the last rounds, and workers to learn that they are over.

        Whoever comes later finds nobody to fetch from. Who takes over a finished
        job does not know who has yet to learn it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                with contextlib.suppress(StoreError, KeyringFormatError):  # the workers remain
                    await self._copies.caught_up()
                while self._was_finished or self.members.present():
                    self._somebody_left.clear()
                    await self._somebody_left.wait()
