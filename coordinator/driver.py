"""Feeds the round machine and executes what it decides.

The machine (`coordinator.round`) is pure; here are the clock, the tasks and the
threads of one leadership. Events come from the intake and the members; effects
run one after the other, the numerical work and the disk in threads. It ends
when the job is finished, halted, or the leadership is lost.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pliska.aggregation import AggregationError, GradientBuffer
from pliska.coordinator.admission import Acceptable
from pliska.coordinator.attendance import Attendance, arrivals
from pliska.coordinator.audit_trail import AuditTrail
from pliska.coordinator.members import Members
from pliska.coordinator.publisher import Publisher
from pliska.coordinator.reputation import quarantine
from pliska.coordinator.round import advance, next_tick
from pliska.coordinator.round_state import (
    Aggregate,
    Aggregated,
    AggregationFailed,
    Answer,
    Commit,
    Committed,
    Effect,
    Event,
    MembersChanged,
    Offered,
    Opened,
    Phase,
    Publish,
    Received,
    RoundOptions,
    RoundState,
    SlotState,
    Tick,
)
from pliska.coordinator.stepper import CLOSED_ROUNDS_MAX, SYNCHRONOUS, Stepper
from pliska.coordinator.wire import ReplyCode
from pliska.coordinator.wire.thread import in_thread

ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)

EXPIRY_CHECKS_PER_LEASE = 4
"""How often silent workers are looked for at least."""

_ENDED = (Phase.FINISHED, Phase.HALTED)


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
        self._transfers: dict[str, asyncio.Task[Any]] = {}
        self._arrived: dict[str, float] = {}
        self._closed_at: dict[int, float] = {}
        self._quarantine = quarantine(stepper.standings, (), options.quorum)
        self._is_over = False

    @property
    def state(self) -> RoundState:
        """Where the round stands."""
        return self._state

    def acceptable(self) -> Acceptable:
        """Return what a header must say at this moment."""
        head = self._stepper.head
        return Acceptable(
            job=self._stepper.job.name,
            epoch=self._stepper.epoch,
            round=self._state.round
            if self._state.phase is not Phase.FINISHED
            else head.version + 1,
            mode=SYNCHRONOUS,
            mode_epoch=0,
            base_version=head.version,
            base_digest=head.parameters_digest,
            closed=self._stepper.closed,
            slot_taken_by=frozenset(self._state.slots),
            quarantined=self._quarantine.kept_out,
        )

    def feed(self, event: Event) -> None:
        """Let the machine decide on an event; its effects run soon."""
        self._advance(event)

    def offer(self, offer: Offered) -> Answer:
        """Ask for a worker's slot; ACCEPTED means that its payload is to be read."""
        if self._is_over:
            return Answer(ReplyCode.STALE_EPOCH, "this coordinator no longer leads the job")
        (answer,) = [effect for effect in self._advance(offer) if isinstance(effect, Answer)]
        return answer

    def complete(self, offer: Offered) -> Answer:
        """Report a payload that is verified and lies in its row; ACCEPTED: the round counts it."""
        self._arrived[offer.worker] = self._now() - self._state.since
        self._advance(Received(offer))
        slot = self._state.slots.get(offer.worker)
        if slot is not None and slot.state is SlotState.FROZEN:
            return Answer(ReplyCode.EQUIVOCATION, slot.reason)
        if slot is None or slot.offer != offer or slot.state is not SlotState.FILLED:
            return Answer(ReplyCode.STALE_ROUND, "the round went on without this gradient")
        return Answer(ReplyCode.ACCEPTED)

    def closed_ago_s(self, round_number: int) -> float | None:
        """Return how long ago a recent round closed; None where that is not known."""
        closed_at = self._closed_at.get(round_number)
        return None if closed_at is None else self._now() - closed_at

    def members_changed(self) -> None:
        """Tell the machine who is here now, and not kept out."""
        present = self._members.present()
        self._quarantine = quarantine(self._stepper.standings, present, self._options.quorum)
        kept_out = self._quarantine.kept_out
        self._advance(MembersChanged({w: life for w, life in present.items() if w not in kept_out}))

    def is_receiving_from(self, worker: str) -> bool:
        """Whether a transfer of this worker is under way; it alone may touch the worker's row."""
        return worker in self._transfers

    def abandon(self, worker: str) -> None:
        """Break off a transfer that a dead process of this worker may have left."""
        if worker in self._transfers:
            self._transfers[worker].cancel()

    async def transfer(
        self, worker: str, receiving: Coroutine[Any, Any, ResultT]
    ) -> ResultT | None:
        """Receive a payload, unless the round closes first.

        Args:
            worker: Whose; it has no other transfer under way.
            receiving: Claims the row, fills it, and gives it back if it fails or
                is cancelled. Nothing touches the row after it has ended.

        Returns:
            What it returned; None when the round closed or `abandon` was called.
        """
        task = asyncio.create_task(receiving)
        self._transfers[worker] = task
        task.add_done_callback(lambda _: self._transfers.pop(worker))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        return None if task.cancelled() else task.result()

    async def run(self) -> None:
        """Execute effects and keep time until the job is finished or halted.

        Raises:
            LockError: The leadership is lost, or the store failed for so long that it will be.
            CoordinatorError: A round could not be made durable.
        """
        try:
            while not (self._state.phase in _ENDED and self._effects.empty()):
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
            self._is_over = self._state.phase not in _ENDED
            await self._end_transfers()

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
            log.warning("workers=%s reason=%s", ",".join(gone), "silent for longer than the lease")
            self.members_changed()

    def _advance(self, event: Event) -> tuple[Effect, ...]:
        before = self._state
        step = advance(before, event, self._now(), self._options)
        self._state = step.state
        if step.state.reason != before.reason:
            log.info(
                "round=%d phase=%s reason=%s", step.state.round, step.state.phase, step.state.reason
            )
        for effect in step.effects:
            if isinstance(effect, Opened):
                # At once: an offer that comes next finds the rows of the round before free.
                self._buffer.keep({*effect.kept, *self._transfers})
            elif not isinstance(effect, Answer):
                self._effects.put_nowait(effect)
        if step.state is not before and not step.effects:
            self._effects.put_nowait(None)  # the next tick may be due earlier now
        return step.effects

    async def _execute(self, effect: Effect) -> None:
        match effect:
            case Aggregate():
                await self._aggregate(effect)
            case Commit():
                await in_thread(self._stepper.commit)
                await self._hand_over_to_audits()
                self._stepper.advance()
                self._arrived.clear()
                self._tell_changes()
                self.members_changed()  # before the next round opens: it keeps others out
                self._advance(Committed())
            case Publish():
                is_final = self._state.phase is Phase.FINISHED
                published = await in_thread(self._stepper.publish, is_final)
                await self._publisher.publish(published)
            case Opened() | Answer():
                raise AssertionError("executed where the machine decided it")

    async def _hand_over_to_audits(self) -> None:
        """Let the trail see the rows of a committed round before they are given back."""
        commit, annex = self._stepper.prepared
        base = self._publisher.published
        self._trail.committed(commit, annex.headers, self._stepper.standings, base, self._buffer)
        await self._trail.rows_are_free()

    async def _aggregate(self, effect: Aggregate) -> None:
        self._closed_at[self._state.round] = self._now()
        self._closed_at.pop(self._state.round - CLOSED_ROUNDS_MAX, None)
        await self._end_transfers()
        try:
            await in_thread(
                self._stepper.aggregate,
                self._buffer,
                effect.refused,
                self._state.slots,
                self._attendance(),
            )
        except AggregationError as error:
            await self._trail.rows_are_free()
            self._advance(AggregationFailed(str(error)))
        else:
            self._advance(Aggregated())

    def _attendance(self) -> Attendance:
        """Say who came to the round that was just sealed."""
        state = self._state
        filled = state.workers_in(SlotState.FILLED)
        kept_out = set(self._quarantine.kept_out) - set(state.slots)
        return Attendance(
            arrivals=arrivals({worker: self._arrived[worker] for worker in filled}),
            absent=tuple(sorted(set(state.members) - set(state.slots) - kept_out)),
            excluded=tuple(sorted(kept_out)),
            spared=tuple(sorted(self._quarantine.spared)),
        )

    def _tell_changes(self) -> None:
        """Log whose standing the last commit changed, and why."""
        commit = self._stepper.last_commit
        for change in commit.record.changes if commit else ():
            log.warning(
                "worker=%s standing=%s before=%s reason=%s",
                change.worker,
                change.after,
                change.before,
                change.reason,
            )

    async def _end_transfers(self) -> None:
        """Break off what is still being received; after this, rows change no more."""
        transfers = set(self._transfers.values())
        for transfer in transfers:
            transfer.cancel()
        if transfers:
            await asyncio.wait(transfers)
