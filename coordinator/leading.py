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
from collections.abc import Mapping
from typing import Any

from pliska.aggregation import GradientBuffer, rule_named
from pliska.coordinator.audit_trail import AuditTrail
from pliska.coordinator.challenges import Challenges
from pliska.coordinator.combiner import Combiner
from pliska.coordinator.driver import RoundDriver
from pliska.coordinator.durability import Durability
from pliska.coordinator.inheritance import Inheritance, inherit
from pliska.coordinator.intake import Intake
from pliska.coordinator.joining import Joining
from pliska.coordinator.means import Means
from pliska.coordinator.measurements import Measurements
from pliska.coordinator.members import Member, Members
from pliska.coordinator.mode_control import ModeControl
from pliska.coordinator.publisher import Publisher
from pliska.coordinator.records.kept_job import KeptJob
from pliska.coordinator.replication.ledger import Copies, NoCopies
from pliska.coordinator.replication.recovery import Warm
from pliska.coordinator.replication.sources import Sources
from pliska.coordinator.rounds.round_events import ModeRequested
from pliska.coordinator.rounds.round_state import Phase, RoundOptions, RoundState
from pliska.coordinator.status import job_status
from pliska.coordinator.stepper import Stepper
from pliska.coordinator.tally import Tally
from pliska.coordinator.wire import Manifest
from pliska.coordinator.wire.limits import SPARE_MEMBERS
from pliska.coordinator.wire.thread import in_thread
from pliska.discovery import KeyringFormatError
from pliska.locks import Leadership, StoreError

log = logging.getLogger(__name__)

LINGER_S = 5.0
"""How long a finished job waits for its standbys and workers to fetch what came last."""


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
        job, self._means = means.job, means
        self.job = job.name
        self.epoch = leadership.epoch
        self.members = Members(
            means.worker_lease_s, 2 * job.rounds.workers + SPARE_MEMBERS, secrets.token_bytes
        )
        self.tally = Tally()
        self._somebody_left = asyncio.Event()
        KeptJob(means.storage, job.name).write(job)
        self._copies: Copies = copies or NoCopies()
        inherited = inherit(means, sources, warm)
        self._head, model = inherited.head, inherited.model
        log.info("job=%s epoch=%d version=%d", job.name, self.epoch, model.step)
        self._durability = Durability(
            means,
            leadership,
            inherited,
            copies=self._copies,
            sources=sources,
            roll_back=lambda found: self._driver.roll_back(found),  # noqa: PLW0108 - made below
        )
        rule = rule_named(job.rule.name, **job.rule.parameters)
        options = RoundOptions.of_job(job, rule, self.members.members_max)
        combiner = Combiner(job, rule, options.gatherings)
        self._stepper = self._begin_stepping(inherited, combiner)
        self._was_finished = inherited.state.phase is Phase.FINISHED
        self.publisher = Publisher(self._stepper.publish(self._was_finished))
        self._measurements = Measurements(means.evaluator, self.publisher, job.evaluate.every)
        buffer = GradientBuffer(self.members.members_max, model.dimension)
        self._trail = AuditTrail(job, means.storage, means.signer, inherited.docket)
        self._driver = self._begin_rounds(inherited.state, options, buffer)
        self._control = ModeControl(
            job,
            means.directory,
            leadership,
            options.gatherings,
            lambda: self._driver.state,
            lambda setting: self._driver.feed(ModeRequested(setting)),
        )
        self.joining = self._admit_workers(model.manifest())
        self.intake = self._take_gradients_in(model.manifest(), buffer)

    def _begin_stepping(self, inherited: Inheritance, combiner: Combiner) -> Stepper:
        """Take hold of the model at the last committed version."""
        return Stepper(
            job=self._means.job,
            epoch=self.epoch,
            combiner=combiner,
            model=inherited.model,
            head=inherited.head,
            recent=inherited.recent,
            standings=inherited.standings,
            docket=inherited.docket,
            ledger=self._durability.ledger,
            storage=self._means.storage,
            checkpoints=self._durability.checkpoints,
            signer=self._means.signer,
            wall_time=time.time,
        )

    def _begin_rounds(
        self, state: RoundState, options: RoundOptions, buffer: GradientBuffer
    ) -> RoundDriver:
        return RoundDriver(
            state=state,
            options=options,
            stepper=self._stepper,
            buffer=buffer,
            members=self.members,
            publisher=self.publisher,
            trail=self._trail,
            now=self._means.now,
        )

    def _admit_workers(self, manifest: Manifest) -> Joining:
        return Joining(
            job=self.job,
            challenges=Challenges(secrets.token_bytes),
            members=self.members,
            keyring=self._means.directory.keyring,
            manifest=manifest,
            driver=self._driver,
            tally=self.tally,
            now=self._means.now,
        )

    def _take_gradients_in(self, manifest: Manifest, buffer: GradientBuffer) -> Intake:
        return Intake(
            driver=self._driver,
            members=self.members,
            keyring=self._means.directory.keyring,
            buffer=buffer,
            manifest=manifest,
            signer=self._means.signer,
            tally=self.tally,
            trail=self._trail,
            now=self._means.now,
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
            asyncio.create_task(self._durability.rollbacks.run()),
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
            await in_thread(self._durability.finish)
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
        known = job_status(
            self._means.job,
            self._stepper,
            self._driver.state,
            self.members,
            self.tally,
            self._measurements.accuracy,
            self._driver.quarantine,
        )
        return {**known, "replicas": dict(self._copies.status())}

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
