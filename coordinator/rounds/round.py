"""One job's rounds as a pure state machine: `(state, event, now) -> (state, effects)`.

It knows what may happen in which phase, and what becomes of a sealed round: it is
committed, aborted or filtered, or gives way to a rollback. When a round opens and
closes is `collecting`, which gradient takes a slot `slots`, and who computes on
which batch `leasing`. Each state carries the reason for it. There is no I/O, no
clock and no thread here: `coordinator.driver` feeds it events and executes the effects.

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

from collections.abc import Mapping
from dataclasses import replace

from pliska.coordinator.records.data_leases import DataCursor, DataLeases
from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.rounds.collecting import gathering_of, next_gathering, reopen, settle
from pliska.coordinator.rounds.leasing import lease_after_commit, lease_on_request
from pliska.coordinator.rounds.round_events import (
    Aggregated,
    AggregationFailed,
    Asked,
    Broken,
    Commit,
    Committed,
    Event,
    Filtered,
    MembersChanged,
    ModeRequested,
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
    Slot,
    SlotState,
)
from pliska.coordinator.rounds.slots import fill_slot, offer_slot, release_slot


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
            return settle(state, now, options)
        case MembersChanged(present):
            return settle(replace(state, present=dict(present)), now, options)
        case ModeRequested() | RollbackReady():
            return _turn_to_wish(state, event, now, options)
        case Offered() | Received() | Refused() | Broken():
            step = _turn_to_slot(state, event, now, gathering_of(state, options).lag_max)
            return _settled(step, state, now, options)
        case Asked(worker):
            return Step(lease_on_request(state, worker, gathering_of(state, options).lag_max))
        case Aggregated():
            return _prepared(state, now)
        case AggregationFailed(reason):
            return _abort(state, reason, now, options)
        case Filtered(reasons):
            return _filtered(state, reasons, now, options)
        case Committed(cursor):
            return _committed(state, cursor, now, options)


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
    return settle(requested, now, options) if state.phase is Phase.WAITING else Step(requested)


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


def _settled(step: Step, before: RoundState, now: float, options: RoundOptions) -> Step:
    """Open or close the round where a step changed anything."""
    if step.state is before:
        return step
    settled = settle(step.state, now, options)
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
    step = reopen(cleared, f"aborted: {reason}", now, options)
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
    return settle(collecting, now, options)


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
        expected=next_gathering(state, options).rows_least,
        since=now,
        attempt=0,
        aborts=0,
        sealed=None,
        is_primed=was_round and state.setting.mode is Mode.ASYNCHRONOUS,
        leases=lease_after_commit(state, cursor, gathering_of(state, options).lag_max)
        if was_round
        else DataLeases(cursor),
    )
    if waiting.rollback is not None:
        step = _roll_back(waiting, waiting.rollback, now)
    else:
        step = settle(waiting, now, options)
    return Step(step.state, (Publish(), *step.effects))
