"""Feeds the round machine and executes what it decides.

The machine (`rounds.round`) is pure; here are the clock, the tasks and the
threads of one leadership. Events come from the intake and the members; effects
run one after the other, the numerical work and the disk in threads. It ends
when the job is finished, halted, or the leadership is lost.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from pliska.aggregation import AggregationError, GradientBuffer
from pliska.coordinator.acceptance import acceptable_now
from pliska.coordinator.admission import Acceptable
from pliska.coordinator.audit_trail import AuditTrail
from pliska.coordinator.members import Members
from pliska.coordinator.publisher import Publisher
from pliska.coordinator.records.recent_rounds import RECENT_MAX
from pliska.coordinator.round_log import RoundLog
from pliska.coordinator.rounds.account import attendance_of
from pliska.coordinator.rounds.collecting import gathering_of, next_tick
from pliska.coordinator.rounds.reputation import Quarantine, quarantine
from pliska.coordinator.rounds.restoring import Restorable
from pliska.coordinator.rounds.round import advance
from pliska.coordinator.rounds.round_events import (
    Aggregate,
    AggregationFailed,
    Answer,
    Asked,
    Commit,
    Committed,
    Effect,
    Event,
    Filtered,
    MembersChanged,
    Opened,
    Publish,
    Recall,
    Received,
    Restore,
    RollbackReady,
    Tick,
)
from pliska.coordinator.rounds.round_state import (
    ENDED,
    Offered,
    Phase,
    RoundOptions,
    RoundState,
    Sealed,
    SlotState,
)
from pliska.coordinator.stepper import Stepper
from pliska.coordinator.transfers import Transfers
from pliska.coordinator.wire import ReplyCode
from pliska.coordinator.wire.thread import in_thread

EXPIRY_CHECKS_PER_LEASE = 4
"""How often silent workers are looked for at least."""


class RoundDriver:
    """Runs the rounds of one job for as long as this coordinator leads it."""

    def __init__(
        self,
        *,
        state: RoundState,
        options: RoundOptions,
        stepper: Stepper,
        buffer: GradientBuffer,
        members: Members,
        publisher: Publisher,
        trail: AuditTrail,
        now: Callable[[], float],
    ) -> None:
        """Begin where the last committed round left off.

        Args:
            state: The round to work on.
            options: When a round opens and closes.
            stepper: Aggregates, steps the model and commits.
            buffer: Where the intake puts the rows.
            members: The live workers.
            publisher: Gets each committed version.
            trail: Reads rows for audits before they are given back.
            now: Seconds on a monotonic clock, the one of `state.since`.
        """
        self._state = state
        self._options = options
        self._stepper = stepper
        self._buffer = buffer
        self._members = members
        self._publisher = publisher
        self._trail = trail
        self._now = now
        self._effects: asyncio.Queue[Effect | None] = asyncio.Queue()
        self.transfers = Transfers()
        self._closed_at: dict[int, float] = {}
        self._quarantine = quarantine(stepper.standings, (), 0)
        self._opened = asyncio.Event()
        self._log = RoundLog(stepper.job.data.batch)
        self._restorable: Restorable | None = None
        self._is_over = False

    @property
    def state(self) -> RoundState:
        """Where the round stands."""
        return self._state

    def acceptable(self) -> Acceptable:
        """Return what a header must say at this moment."""
        kept_out = self._quarantine.kept_out
        return acceptable_now(self._stepper, self._state, self._options, kept_out)

    def feed(self, event: Event) -> None:
        """Let the machine decide on an event; its effects run soon."""
        self._advance(event)

    def roll_back(self, restorable: Restorable) -> None:
        """Go back to an older version as soon as no round is being aggregated or committed."""
        self._restorable = restorable
        self._advance(RollbackReady(restorable.rollback))

    def offer(self, offer: Offered) -> Answer:
        """Ask for a worker's slot; ACCEPTED means that its payload is to be read."""
        if self._is_over:
            return Answer(ReplyCode.STALE_EPOCH, "this coordinator no longer leads the job")
        (answer,) = [effect for effect in self._advance(offer) if isinstance(effect, Answer)]
        return answer

    def lease_of(self, worker: str) -> int | None:
        """Return the lease of a worker's next gradient; None where it has to wait for one."""
        self._advance(Asked(worker))
        return self._state.leases.of(worker)

    def leases(self) -> Mapping[str, int]:
        """Return the lease of each worker that has one."""
        return {worker: held.lease for worker, held in self._state.leases.held.items()}

    def opens_soon(self) -> bool:
        """Whether it is worth waiting for the next round to open: where rounds wait for nobody."""
        return gathering_of(self._state, self._options).lag_max > 0 and not self._is_over

    async def opening(self, timeout_s: float) -> None:
        """Wait until a round opens, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._opened.wait()

    def complete(self, offer: Offered) -> Answer:
        """Report a payload that is verified and lies in its row; ACCEPTED: the round counts it."""
        self._advance(Received(offer))
        slot = self._state.slot_of(offer.worker)
        if slot is not None and slot.state is SlotState.FROZEN:
            return Answer(ReplyCode.EQUIVOCATION, slot.reason)
        if slot is None or slot.offer != offer or slot.state is not SlotState.FILLED:
            return Answer(ReplyCode.STALE_ROUND, "the round went on without this gradient")
        return Answer(ReplyCode.ACCEPTED)

    @property
    def quarantine(self) -> Quarantine:
        """Who is kept out of the round at hand, and who should be and is needed."""
        return self._quarantine

    def closed_ago_s(self, round_number: int) -> float | None:
        """Return how long ago a recent round closed; None where that is not known."""
        closed_at = self._closed_at.get(round_number)
        return None if closed_at is None else self._now() - closed_at

    def members_changed(self) -> None:
        """Tell the machine who is here now, and not kept out."""
        present = self._members.present()
        needed = gathering_of(self._state, self._options).workers_least
        self._quarantine = quarantine(self._stepper.standings, present, needed)
        kept_out = self._quarantine.kept_out
        self._advance(MembersChanged({w: life for w, life in present.items() if w not in kept_out}))

    async def run(self) -> None:
        """Execute effects and keep time until the job is finished or halted.

        Raises:
            LockError: The leadership is lost, or the store failed for so long that it will be.
            CoordinatorError: A round could not be made durable.
        """
        try:
            while not (self._state.phase in ENDED and self._effects.empty()):
                self._expire_members()
                try:
                    # Not `wait_for`: before Python 3.12 it may swallow a cancellation.
                    async with asyncio.timeout(self._patience_s()):
                        effect = await self._effects.get()
                except TimeoutError:
                    self._advance(Tick())
                    continue
                if effect is not None:
                    await self._execute(effect)
        finally:
            self._is_over = self._state.phase not in ENDED
            await self.transfers.end(self.transfers.workers)

    def _patience_s(self) -> float:
        """How long until something must be looked at although nothing happened."""
        tick = next_tick(self._state, self._options)
        expiry_check_s = self._members.lease_s / EXPIRY_CHECKS_PER_LEASE
        if tick is None:
            return expiry_check_s
        return max(0.0, min(tick - self._now(), expiry_check_s))

    def _expire_members(self) -> None:
        gone = self._members.expire(self._now())
        if gone:
            self._log.silent(gone)
            self.members_changed()

    def _advance(self, event: Event) -> tuple[Effect, ...]:
        before = self._state
        step = advance(before, event, self._now(), self._options)
        self._state = step.state
        self._log.advanced(before, step.state)
        for effect in step.effects:
            if isinstance(effect, Opened):
                # At once: an offer that comes next finds the rows of the round before free.
                self._buffer.keep({*effect.kept, *self.transfers.workers})
                self._opened.set()
                self._opened = asyncio.Event()
            if not isinstance(effect, Answer):
                self._effects.put_nowait(effect)
        if step.state is not before and not step.effects:
            self._effects.put_nowait(None)  # the next tick may be due earlier now
        return step.effects

    async def _execute(self, effect: Effect) -> None:
        match effect:
            case Aggregate(sealed):
                await self._aggregate(sealed)
            case Commit():
                await in_thread(self._stepper.commit)
                await self._hand_over_to_audits()
                self._take_commit()
            case Restore():
                await self._restore()
            case Publish():
                is_final = self._state.phase is Phase.FINISHED
                published = await in_thread(self._stepper.publish, is_final)
                await self._publisher.publish(published)
            case Recall():
                await self._publisher.recall()
            case Opened():
                await self._publisher.wake()  # who waits for a lease may have one now
            case Answer():
                raise AssertionError("returned where the machine decided it")

    async def _restore(self) -> None:
        """Commit a rollback; whatever is under way was computed on what it undoes."""
        restorable, self._restorable = self._restorable, None
        if restorable is None:
            raise AssertionError("a rollback is begun with the version that it restores")
        await self.transfers.end(self.transfers.workers)
        await self._trail.rows_are_free()
        await in_thread(self._stepper.roll_back, restorable)
        self._take_commit()

    def _take_commit(self) -> None:
        """Go on from what was committed."""
        self._log.committed(self._stepper.advance())
        self.members_changed()  # before the next round opens: it keeps others out
        self._advance(Committed(self._stepper.cursor))

    async def _hand_over_to_audits(self) -> None:
        """Let the trail see the rows of a committed round before they are given back."""
        commit, annex = self._stepper.prepared
        base = self._publisher.published
        self._trail.committed(commit, annex.headers, self._stepper.standings, base, self._buffer)
        await self._trail.rows_are_free()

    async def _aggregate(self, sealed: Sealed) -> None:
        self._closed_at[sealed.round] = self._now()
        self._closed_at.pop(sealed.round - RECENT_MAX, None)
        # What arrives for the next round goes on arriving; its rows are not looked at here.
        await self.transfers.end(set(self.transfers.workers) - set(self._state.slots))
        contributors = set(sealed.contributors)
        rows = {e.worker: e.values for e in self._buffer.filled() if e.worker in contributors}
        attendance = attendance_of(sealed, self._quarantine)
        try:
            outcome = await in_thread(self._stepper.aggregate, sealed, rows, attendance)
        except AggregationError as error:
            await self._give_rows_back(contributors)
            self._advance(AggregationFailed(str(error)))
        else:
            if isinstance(outcome, Filtered):
                await self._give_rows_back(contributors)
            self._advance(outcome)

    async def _give_rows_back(self, workers: set[str]) -> None:
        """Free the rows of gradients that came to nothing."""
        await self._trail.rows_are_free()
        self._buffer.keep(set(self._buffer.workers) - workers)
