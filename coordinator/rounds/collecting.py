"""When a round opens, and when it closes: the part of the machine between two sealed rounds.

It turns on who is there, which gradients have come, and how long it has waited:
while the job is WAITING a round may open, while it is COLLECTING it may be sealed
or opened again. Called by `rounds.round`, which knows all phases and what happens
to a sealed round; which gradient takes a slot is `slots`.
"""

from collections.abc import Iterator
from dataclasses import replace

from pliska.coordinator.rounds.gathering import Gathering
from pliska.coordinator.rounds.leasing import lease_at_opening
from pliska.coordinator.rounds.round_events import Aggregate, Effect, Opened, Recall, Step
from pliska.coordinator.rounds.round_state import (
    Phase,
    RoundOptions,
    RoundState,
    Sealed,
    SlotState,
    workers_in,
)
from pliska.coordinator.rounds.soft_deadline import soft_deadline_s


def settle(state: RoundState, now: float, options: RoundOptions) -> Step:
    """Open or close the round if its time has come."""
    if state.phase is Phase.WAITING:
        return _open_when_ready(state, now, options)
    if state.phase is Phase.COLLECTING:
        return _close_when_ready(state, now, options)
    return Step(state)


def reopen(state: RoundState, reason: str, now: float, options: RoundOptions) -> Step:
    """Open the same round again with those who are here, or wait for more of them."""
    needed = next_gathering(state, options).rows_least
    waiting = replace(state, phase=Phase.WAITING, since=now, expected=needed)
    step = _open_when_ready(waiting, now, options)
    return Step(replace(step.state, reason=f"{reason}; {step.state.reason}"), step.effects)


def next_tick(state: RoundState, options: RoundOptions) -> float | None:
    """Return when a `Tick` is due if nothing else happens, or None where none ever is."""
    if state.phase is Phase.WAITING:
        shortage = next_gathering(state, options).shortage_of_workers(len(state.present))
        return state.since + options.soft_deadline_s if shortage is None else None
    if state.phase is Phase.COLLECTING:
        gathering = gathering_of(state, options)
        is_short = gathering.shortage(_rows(state, options)) is not None
        waits_on = is_short and not gathering.is_filtered
        return state.since + (options.deadline_s if waits_on else state.soft_deadline_s)
    return None


def gathering_of(state: RoundState, options: RoundOptions) -> Gathering:
    """How the round at hand fills."""
    return options.gatherings.of(state.setting.mode, state.is_primed)


def next_gathering(state: RoundState, options: RoundOptions) -> Gathering:
    """How the next round to be opened will fill."""
    is_primed = state.is_primed and state.requested == state.setting
    return options.gatherings.of(state.requested.mode, is_primed)


def _open_when_ready(state: RoundState, now: float, options: RoundOptions) -> Step:
    there = len(state.present)
    shortage = next_gathering(state, options).shortage_of_workers(there)
    if shortage is not None:
        # The wait for more begins when there are enough.
        return Step(replace(state, since=now, reason=f"waits for workers: {shortage}"))
    waited = now >= state.since + options.soft_deadline_s
    if there < state.expected and not waited:
        reason = f"waits for more workers: {there} of {state.expected} are here"
        return Step(replace(state, reason=reason))
    return _open(state, now, options)


def _open(state: RoundState, now: float, options: RoundOptions) -> Step:
    """Open the round in the mode that was asked for, with those who are here."""
    gathering = next_gathering(state, options)
    is_switched = state.requested != state.setting
    # Gradients that were signed for another mode, or are too old for this one, end here.
    slots = {
        worker: slot
        for worker, slot in state.slots.items()
        if not is_switched and state.round - slot.offer.round <= gathering.lag_max
    }
    opened = replace(
        state,
        phase=Phase.COLLECTING,
        attempt=state.attempt + 1,
        since=now,
        members=dict(state.present),
        slots=slots,
        setting=state.requested,
        is_primed=state.is_primed and not is_switched,
        places=gathering.places({*state.present, *slots}),
        soft_deadline_s=soft_deadline_s(
            state.turns.seconds(),
            options.soft_deadline_s,
            options.deadline_s,
            options.soft_deadline_spread,
        ),
        opened_at={
            number: at
            for number, at in {state.round: now, **state.opened_at}.items()
            if state.round - number <= gathering.lag_max
        },
        reason=f"collects from {len(state.present)} workers",
    )
    opened = replace(opened, leases=lease_at_opening(opened, gathering.lag_max))
    effects: tuple[Effect, ...] = (Opened(tuple(sorted(slots))),)
    if len(slots) < len(state.slots):
        effects = (*effects, Recall())
    closed = _close_when_ready(opened, now, options)
    return Step(closed.state, (*effects, *closed.effects))


def _close_when_ready(state: RoundState, now: float, options: RoundOptions) -> Step:
    gathering, rows = gathering_of(state, options), _rows(state, options)
    shortage = gathering.shortage(rows)
    # Compared as `next_tick` adds them up, so that a tick that comes when due is due.
    is_late = now >= state.since + state.soft_deadline_s
    is_over = now >= state.since + options.deadline_s
    waits = next(_outstanding(state), None) is not None
    if shortage is None:
        is_due = is_late or not waits
        return _seal(state, now, options) if gathering.is_full(rows) or is_due else Step(state)
    if gathering.is_filtered and (is_late or (state.slots and not waits)):
        return _prime_again(state, now, options)
    joined = not waits and any(
        state.members.get(worker) != incarnation and _is_unsettled(state, worker)
        for worker, incarnation in state.present.items()
    )
    if joined:
        return reopen(state, f"reopens with new workers: {shortage}", now, options)
    if is_over:
        return reopen(state, f"reopens after {options.deadline_s:g} s: {shortage}", now, options)
    if not waits:
        return Step(replace(state, reason=f"waits for workers to join: {shortage}"))
    return Step(state)


def _seal(state: RoundState, now: float, options: RoundOptions) -> Step:
    gathering = gathering_of(state, options)
    arriving = {w: s for w, s in state.slots.items() if s.state is SlotState.RECEIVING}
    turns = state.turns
    if gathering.lag_max == 0:
        # What has not come by now never will: it counts as the time it has taken so far.
        for worker in _outstanding(state):
            turns = turns.followed_by(worker, now - state.opened_at[state.round])
    sealed = Sealed(
        round=state.round,
        since=state.since,
        setting=state.setting,
        members=state.members,
        slots={w: s for w, s in state.slots.items() if w not in arriving},
        places=state.places,
        is_filtered=gathering.is_filtered,
    )
    closed = replace(
        state,
        phase=Phase.AGGREGATING,
        since=now,
        slots=arriving if gathering.lag_max else {},
        sealed=sealed,
        turns=turns,
        reason=f"aggregates {len(sealed.contributors)} gradients, {len(sealed.refused)} refused",
    )
    return Step(closed, (Aggregate(sealed),))


def _prime_again(state: RoundState, now: float, options: RoundOptions) -> Step:
    """Let the rule decide a round in which nobody passed the filter, so that it is not the last."""
    outvoted = workers_in(state.slots, SlotState.OUTVOTED)
    others = {worker: slot for worker, slot in state.slots.items() if worker not in outvoted}
    unprimed = replace(state, is_primed=False, slots=others)
    reason = f"nobody passed the filter, {len(outvoted)} tried: the rule decides this round"
    step = reopen(unprimed, reason, now, options)
    return Step(step.state, (*step.effects, Recall()))


def _outstanding(state: RoundState) -> Iterator[str]:
    """Name the members whose gradient may still come."""
    return (
        worker
        for worker, incarnation in state.members.items()
        if state.present.get(worker) == incarnation and _is_unsettled(state, worker)
    )


def _is_unsettled(state: RoundState, worker: str) -> bool:
    """Whether a gradient of this worker may still come."""
    return worker not in state.slots or state.slots[worker].state is SlotState.RECEIVING


def _rows(state: RoundState, options: RoundOptions) -> int:
    gathering = gathering_of(state, options)
    settled = [w for w, slot in state.slots.items() if slot.state is not SlotState.RECEIVING]
    filled = workers_in(state.slots, SlotState.FILLED) if gathering.is_filtered else ()
    return gathering.rows(settled, filled, state.places)
