"""One job's rounds as a pure state machine: `(state, event, now) -> (state, effects)`.

It decides when a round opens, which gradient takes a slot, when the round
closes and what happens when it cannot be finished. Each state carries the
reason for it. There is no I/O, no clock and no thread here:
`coordinator.driver` feeds it events and executes the effects.

    WAITING -> COLLECTING -> AGGREGATING -> COMMITTING -> WAITING (next round)
                    ^             |                           |
                    +--- aborted -+                           +-> FINISHED | HALTED

A round that runs short of workers is not lost: it keeps the gradients it has,
reopens with the workers that are there, and says what it waits for. One whose
rows cannot be aggregated is aborted with a reason and collected again; nothing
falls back to the mean.
"""

from dataclasses import replace

from pliska.coordinator.round_state import (
    Aggregate,
    Aggregated,
    AggregationFailed,
    Answer,
    Broken,
    Commit,
    Committed,
    Event,
    MembersChanged,
    Offered,
    Opened,
    Phase,
    Publish,
    Received,
    Refused,
    RoundOptions,
    RoundState,
    Slot,
    SlotState,
    Step,
    Tick,
)
from pliska.coordinator.wire import ReplyCode

_SPENT = (SlotState.REFUSED, SlotState.FROZEN)


def advance(state: RoundState, event: Event, now: float, options: RoundOptions) -> Step:
    """Decide what an event means.

    Args:
        state: The state that the last step returned.
        event: What happened. Events that come too late are ignored.
        now: Seconds on the same clock as `state.since`.
        options: The job's settings.

    Returns:
        The next state, whose `reason` says what the round waits for, and the
        effects to execute in order.
    """
    match event:
        case MembersChanged(present):
            return _settle(replace(state, present=dict(present)), now, options)
        case Offered():
            return _offer(state, event, now, options)
        case Received(offer):
            return _fill(state, Slot(offer, SlotState.FILLED), now, options)
        case Refused(offer, reason):
            return _fill(state, Slot(offer, SlotState.REFUSED, reason), now, options)
        case Broken(offer):
            return _release(state, offer)
        case Aggregated():
            return _prepared(state, now)
        case AggregationFailed(reason):
            return _abort(state, reason, now, options)
        case Committed():
            return _committed(state, now, options)
        case Tick():
            return _settle(state, now, options)


def next_tick(state: RoundState, options: RoundOptions) -> float | None:
    """Return when a `Tick` is due if nothing else happens, or None."""
    if state.phase is Phase.WAITING:
        enough = len(state.present) >= options.quorum
        return state.since + options.soft_deadline_s if enough else None
    if state.phase is Phase.COLLECTING:
        short = state.arrived() < options.quorum
        return state.since + (options.deadline_s if short else options.soft_deadline_s)
    return None


def _settle(state: RoundState, now: float, options: RoundOptions) -> Step:
    """Open or close the round if its time has come."""
    if state.phase is Phase.WAITING:
        return _open_when_ready(state, now, options)
    if state.phase is Phase.COLLECTING:
        return _close_when_ready(state, now, options)
    return Step(state)


def _open_when_ready(state: RoundState, now: float, options: RoundOptions) -> Step:
    there = len(state.present)
    if there < options.quorum:
        # The wait for more begins when the quorum is there.
        reason = f"waits for workers: {there} of {options.quorum} are here"
        return Step(replace(state, since=now, reason=reason))
    waited = now - state.since >= options.soft_deadline_s
    if there < state.expected and not waited:
        reason = f"waits for more workers: {there} of {state.expected} are here"
        return Step(replace(state, reason=reason))
    return _open(state, now)


def _open(state: RoundState, now: float) -> Step:
    opened = replace(
        state,
        phase=Phase.COLLECTING,
        attempt=state.attempt + 1,
        since=now,
        members=dict(state.present),
        reason=f"collects from {len(state.present)} workers",
    )
    return Step(opened, (Opened(tuple(sorted(state.slots))),))


def _close_when_ready(state: RoundState, now: float, options: RoundOptions) -> Step:
    arrived = state.arrived()
    age = now - state.since
    outstanding = [
        worker
        for worker, incarnation in state.members.items()
        if state.present.get(worker) == incarnation and _is_unsettled(state, worker)
    ]
    if arrived >= options.quorum and (not outstanding or age >= options.soft_deadline_s):
        return _seal(state, now)
    joined = any(
        state.members.get(worker) != incarnation and _is_unsettled(state, worker)
        for worker, incarnation in state.present.items()
    )
    short = f"{arrived} of {options.quorum} gradients"
    if not outstanding and joined:
        return _reopen(state, f"reopens with new workers: {short}", now, options)
    if age >= options.deadline_s:
        return _reopen(state, f"reopens after {options.deadline_s:g} s with {short}", now, options)
    if not outstanding:
        return Step(replace(state, reason=f"waits for workers to join: {short}"))
    return Step(state)


def _is_unsettled(state: RoundState, worker: str) -> bool:
    """Whether a gradient of this worker may still come."""
    return worker not in state.slots or state.slots[worker].state is SlotState.RECEIVING


def _seal(state: RoundState, now: float) -> Step:
    refused = {w: s.reason for w, s in state.slots.items() if s.state in _SPENT}
    contributors = state.workers_in(SlotState.FILLED)
    sealed = replace(
        state,
        phase=Phase.AGGREGATING,
        since=now,
        reason=f"aggregates {len(contributors)} gradients, {len(refused)} refused",
    )
    return Step(sealed, (Aggregate(contributors, refused),))


def _reopen(state: RoundState, reason: str, now: float, options: RoundOptions) -> Step:
    waiting = replace(state, phase=Phase.WAITING, since=now, expected=options.quorum)
    step = _open_when_ready(waiting, now, options)
    return Step(replace(step.state, reason=f"{reason}; {step.state.reason}"), step.effects)


def _offer(state: RoundState, offer: Offered, now: float, options: RoundOptions) -> Step:
    slot = state.slots.get(offer.worker)
    if slot is not None and slot.offer == offer:
        return Step(state, (_repeated(slot),))
    if state.phase is Phase.WAITING:
        return Step(state, (Answer(ReplyCode.BUSY, f"round {state.round} {state.reason}"),))
    if state.phase is not Phase.COLLECTING:
        return Step(state, (Answer(ReplyCode.STALE_ROUND, f"round {state.round} is closed"),))
    if state.members.get(offer.worker) != offer.incarnation:
        reason = "joined after the round opened; the next round takes it in"
        return Step(state, (Answer(ReplyCode.BUSY, reason),))
    if slot is None or _is_abandoned(slot, offer):
        taken = _with_slot(state, Slot(offer, SlotState.RECEIVING))
        return Step(taken, (Answer(ReplyCode.ACCEPTED),))
    if slot.offer.incarnation != offer.incarnation:
        reason = "an earlier life of this worker has filled the slot"
        return Step(state, (Answer(ReplyCode.DUPLICATE, reason),))
    reason = f"two different gradients were signed for round {state.round}"
    frozen = _with_slot(state, Slot(slot.offer, SlotState.FROZEN, reason))
    settled = _settle(frozen, now, options)
    return Step(settled.state, (Answer(ReplyCode.EQUIVOCATION, reason), *settled.effects))


def _repeated(slot: Slot) -> Answer:
    """Answer an offer that was made before, so that a worker may always try again."""
    match slot.state:
        case SlotState.RECEIVING:
            return Answer(ReplyCode.BUSY, "this gradient is still being received")
        case SlotState.FROZEN:
            return Answer(ReplyCode.EQUIVOCATION, slot.reason)
        case SlotState.FILLED | SlotState.REFUSED:
            return Answer(ReplyCode.DUPLICATE, slot.reason)


def _is_abandoned(slot: Slot, offer: Offered) -> bool:
    """Whether the slot waits for a payload that a process that is gone was sending."""
    return slot.state is SlotState.RECEIVING and slot.offer.incarnation != offer.incarnation


def _fill(state: RoundState, slot: Slot, now: float, options: RoundOptions) -> Step:
    if not _is_receiving(state, slot.offer):
        return Step(state)
    return _settle(_with_slot(state, slot), now, options)


def _release(state: RoundState, offer: Offered) -> Step:
    if not _is_receiving(state, offer):
        return Step(state)
    return Step(replace(state, slots={w: s for w, s in state.slots.items() if w != offer.worker}))


def _is_receiving(state: RoundState, offer: Offered) -> bool:
    slot = state.slots.get(offer.worker)
    return (
        state.phase is Phase.COLLECTING
        and slot is not None
        and slot.offer == offer
        and slot.state is SlotState.RECEIVING
    )


def _with_slot(state: RoundState, slot: Slot) -> RoundState:
    return replace(state, slots={**state.slots, slot.offer.worker: slot})


def _prepared(state: RoundState, now: float) -> Step:
    if state.phase is not Phase.AGGREGATING:
        return Step(state)
    reason = f"commits round {state.round}"
    return Step(replace(state, phase=Phase.COMMITTING, since=now, reason=reason), (Commit(),))


def _abort(state: RoundState, reason: str, now: float, options: RoundOptions) -> Step:
    if state.phase is not Phase.AGGREGATING:
        return Step(state)
    aborts = state.aborts + 1
    cleared = replace(state, slots={}, aborts=aborts, since=now)
    if aborts >= options.aborts_max:
        halted = f"halted after {aborts} aborts in a row of round {state.round}: {reason}"
        return Step(replace(cleared, phase=Phase.HALTED, reason=halted))
    return _reopen(cleared, f"aborted: {reason}", now, options)


def _committed(state: RoundState, now: float, options: RoundOptions) -> Step:
    if state.phase is not Phase.COMMITTING:
        return Step(state)
    if state.round >= options.rounds:
        reason = f"finished after {state.round} rounds"
        finished = replace(state, phase=Phase.FINISHED, since=now, slots={}, reason=reason)
        return Step(finished, (Publish(),))
    waiting = RoundState(
        round=state.round + 1, expected=options.quorum, since=now, present=state.present
    )
    step = _open_when_ready(waiting, now, options)
    return Step(step.state, (Publish(), *step.effects))
