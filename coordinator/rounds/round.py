"""One job's rounds as a pure state machine: `(state, event, now) -> (state, effects)`.

It decides when a round opens and closes, and what happens when it cannot be
finished; which gradient takes a slot is `slots`, and who computes on which
batch `leasing`. Each state carries the reason for it. There is no I/O, no clock
and no thread here: `coordinator.driver` feeds it events and executes the effects.

    WAITING -> COLLECTING -> AGGREGATING -> COMMITTING -> WAITING (next round)
                    ^             |                           |
                    +--- aborted -+                           +-> FINISHED | HALTED

    WAITING | COLLECTING -> RESTORING -> WAITING (next round)

There is one machine for all modes; what differs between them are the numbers in
`gathering`. A mode that was asked for is taken up when a round opens. Where
gradients may be older than the round, those that arrive while one is being
aggregated go into the next.

A rollback takes the place of the round at hand: its gradients, which were computed
on what is being undone, are given up, and the restored version is the next one.

A round that runs short of workers is not lost: it keeps the gradients it has,
reopens with the workers that are there, and says what it waits for. One whose
rows cannot be aggregated is aborted with a reason and collected again; nothing
falls back to the mean.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pliska.coordinator.records.data_leases import DataCursor, DataLeases
from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.rounds.gathering import Gathering
from pliska.coordinator.rounds.leasing import lease_after_commit, lease_at_opening, lease_on_request
from pliska.coordinator.rounds.round_events import (
    Aggregate,
    Aggregated,
    AggregationFailed,
    Asked,
    Broken,
    Commit,
    Committed,
    Effect,
    Event,
    Filtered,
    MembersChanged,
    ModeRequested,
    Opened,
    Publish,
    Recall,
    Received,
    Refused,
    Restore,
    RollbackReady,
    Step,
    Tick,
)
from pliska.coordinator.rounds.round_state import (
    Offered,
    Phase,
    RoundOptions,
    RoundState,
    Sealed,
    Slot,
    SlotState,
    workers_in,
)
from pliska.coordinator.rounds.slots import fill_slot, offer_slot, release_slot
from pliska.coordinator.rounds.soft_deadline import soft_deadline_s


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
        case Tick():
            return _settle(state, now, options)
        case MembersChanged(present):
            return _settle(replace(state, present=dict(present)), now, options)
        case ModeRequested() | RollbackReady():
            return _turn_to_wish(state, event, now, options)
        case Offered() | Received() | Refused() | Broken():
            step = _turn_to_slot(state, event, now, _gathering(state, options).lag_max)
            return _settled(step, state, now, options)
        case Asked(worker):
            return Step(lease_on_request(state, worker, _gathering(state, options).lag_max))
        case Aggregated():
            return _prepared(state, now)
        case AggregationFailed(reason):
            return _abort(state, reason, now, options)
        case Filtered(reasons):
            return _filtered(state, reasons, now, options)
        case Committed(cursor):
            return _committed(state, cursor, now, options)


def next_tick(state: RoundState, options: RoundOptions) -> float | None:
    """Return when a `Tick` is due if nothing else happens, or None."""
    if state.phase is Phase.WAITING:
        shortage = _next_gathering(state, options).shortage_of_workers(len(state.present))
        return state.since + options.soft_deadline_s if shortage is None else None
    if state.phase is Phase.COLLECTING:
        gathering = _gathering(state, options)
        is_short = gathering.shortage(_rows(state, options)) is not None
        waits_on = is_short and not gathering.is_filtered
        return state.since + (options.deadline_s if waits_on else state.soft_deadline_s)
    return None


def _gathering(state: RoundState, options: RoundOptions) -> Gathering:
    """How the round at hand fills."""
    return options.gatherings.of(state.setting.mode, state.is_primed)


def _next_gathering(state: RoundState, options: RoundOptions) -> Gathering:
    """How the next round to be opened will fill."""
    is_primed = state.is_primed and state.requested == state.setting
    return options.gatherings.of(state.requested.mode, is_primed)


def _rows(state: RoundState, options: RoundOptions) -> int:
    gathering = _gathering(state, options)
    settled = [w for w, slot in state.slots.items() if slot.state is not SlotState.RECEIVING]
    filled = workers_in(state.slots, SlotState.FILLED) if gathering.is_filtered else ()
    return gathering.rows(settled, filled, state.places)


def _turn_to_wish(
    state: RoundState, event: ModeRequested | RollbackReady, now: float, options: RoundOptions
) -> Step:
    match event:
        case ModeRequested(setting):
            return _request(state, setting, now, options)
        case RollbackReady(rollback):
            if state.phase in (Phase.WAITING, Phase.COLLECTING):
                return _roll_back(state, rollback, now)
            return Step(replace(state, rollback=rollback))


def _request(state: RoundState, setting: ModeSetting, now: float, options: RoundOptions) -> Step:
    if setting.mode_epoch <= state.requested.mode_epoch:
        return Step(state)
    requested = replace(state, requested=setting)
    # A round that is open stays what it is: its gradients were signed for that.
    return _settle(requested, now, options) if state.phase is Phase.WAITING else Step(requested)


def _roll_back(state: RoundState, rollback: Rollback, now: float) -> Step:
    """Give up what was computed on the versions that are undone, and restore the older one."""
    restoring = replace(
        state,
        phase=Phase.RESTORING,
        since=now,
        slots={},
        sealed=None,
        opened_at={},
        is_primed=False,
        rollback=None,
        reason=f"rolls back to version {rollback.target} in round {state.round}",
    )
    return Step(restoring, (Restore(rollback),))


def _settle(state: RoundState, now: float, options: RoundOptions) -> Step:
    """Open or close the round if its time has come."""
    if state.phase is Phase.WAITING:
        return _open_when_ready(state, now, options)
    if state.phase is Phase.COLLECTING:
        return _close_when_ready(state, now, options)
    return Step(state)


def _settled(step: Step, before: RoundState, now: float, options: RoundOptions) -> Step:
    """Open or close the round where a step changed anything."""
    if step.state is before:
        return step
    settled = _settle(step.state, now, options)
    return Step(settled.state, (*step.effects, *settled.effects))


def _turn_to_slot(
    state: RoundState, event: Offered | Received | Refused | Broken, now: float, lag_max: int
) -> Step:
    match event:
        case Offered():
            return offer_slot(state, event, lag_max)
        case Received(offer):
            return Step(fill_slot(state, Slot(offer, SlotState.FILLED), now, lag_max))
        case Refused(offer, reason):
            return Step(fill_slot(state, Slot(offer, SlotState.REFUSED, reason), now, lag_max))
        case Broken(offer):
            return Step(release_slot(state, offer))


def _open_when_ready(state: RoundState, now: float, options: RoundOptions) -> Step:
    there = len(state.present)
    shortage = _next_gathering(state, options).shortage_of_workers(there)
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
    gathering = _next_gathering(state, options)
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
    gathering, rows = _gathering(state, options), _rows(state, options)
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
        return _reopen(state, f"reopens with new workers: {shortage}", now, options)
    if is_over:
        return _reopen(state, f"reopens after {options.deadline_s:g} s: {shortage}", now, options)
    if not waits:
        return Step(replace(state, reason=f"waits for workers to join: {shortage}"))
    return Step(state)


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


def _seal(state: RoundState, now: float, options: RoundOptions) -> Step:
    gathering = _gathering(state, options)
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


def _reopen(state: RoundState, reason: str, now: float, options: RoundOptions) -> Step:
    """Open the same round again with those who are here, or wait for more of them."""
    needed = _next_gathering(state, options).rows_least
    waiting = replace(state, phase=Phase.WAITING, since=now, expected=needed)
    step = _open_when_ready(waiting, now, options)
    return Step(replace(step.state, reason=f"{reason}; {step.state.reason}"), step.effects)


def _prime_again(state: RoundState, now: float, options: RoundOptions) -> Step:
    """Let the rule decide a round in which nobody passed the filter, so that it is not the last."""
    outvoted = workers_in(state.slots, SlotState.OUTVOTED)
    others = {worker: slot for worker, slot in state.slots.items() if worker not in outvoted}
    unprimed = replace(state, is_primed=False, slots=others)
    reason = f"nobody passed the filter, {len(outvoted)} tried: the rule decides this round"
    step = _reopen(unprimed, reason, now, options)
    return Step(step.state, (*step.effects, Recall()))


def _prepared(state: RoundState, now: float) -> Step:
    if state.phase is not Phase.AGGREGATING:
        return Step(state)
    reason = f"commits round {state.round}"
    return Step(replace(state, phase=Phase.COMMITTING, since=now, reason=reason), (Commit(),))


def _abort(state: RoundState, reason: str, now: float, options: RoundOptions) -> Step:
    if state.phase is not Phase.AGGREGATING:
        return Step(state)
    if state.rollback is not None:
        return _roll_back(state, state.rollback, now)
    aborts = state.aborts + 1
    cleared = replace(state, sealed=None, aborts=aborts, since=now)
    if aborts >= options.aborts_max:
        halted = f"halted after {aborts} aborts in a row of round {state.round}: {reason}"
        return Step(replace(cleared, phase=Phase.HALTED, slots={}, reason=halted))
    step = _reopen(cleared, f"aborted: {reason}", now, options)
    return Step(step.state, (*step.effects, Recall()))


def _filtered(
    state: RoundState, reasons: Mapping[str, str], now: float, options: RoundOptions
) -> Step:
    """Go on collecting: the sealed gradients have had their say, and none counts."""
    if state.phase is not Phase.AGGREGATING or state.sealed is None:
        return Step(state)
    if state.rollback is not None:
        return _roll_back(state, state.rollback, now)
    judged = {
        worker: replace(slot, state=SlotState.OUTVOTED, reason=reasons[worker])
        if worker in reasons
        else slot
        for worker, slot in state.sealed.slots.items()
    }
    collecting = replace(
        state,
        phase=Phase.COLLECTING,
        since=state.sealed.since,
        slots={**judged, **state.slots},
        sealed=None,
        reason=f"goes on: {len(reasons)} gradients did not pass the filter",
    )
    return _settle(collecting, now, options)


def _committed(state: RoundState, cursor: DataCursor, now: float, options: RoundOptions) -> Step:
    if state.phase not in (Phase.COMMITTING, Phase.RESTORING):
        return Step(state)
    was_round = state.phase is Phase.COMMITTING
    if state.round >= options.rounds:
        reason = f"finished after {state.round} rounds"
        finished = replace(state, phase=Phase.FINISHED, since=now, slots={}, sealed=None)
        return Step(replace(finished, reason=reason), (Publish(),))
    waiting = replace(
        state,
        round=state.round + 1,
        phase=Phase.WAITING,
        expected=_next_gathering(state, options).rows_least,
        since=now,
        attempt=0,
        aborts=0,
        sealed=None,
        is_primed=was_round and state.setting.mode is Mode.ASYNCHRONOUS,
        leases=lease_after_commit(state, cursor, _gathering(state, options).lag_max)
        if was_round
        else DataLeases(cursor),
    )
    if waiting.rollback is not None:
        step = _roll_back(waiting, waiting.rollback, now)
    else:
        step = _open_when_ready(waiting, now, options)
    return Step(step.state, (Publish(), *step.effects))
