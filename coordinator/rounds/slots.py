"""Which gradient takes a worker's slot: each worker has one gradient for each version, once.

A slot is named by a worker and the round that the gradient was made for, one
more than its base version. The first verified offer takes it, if it names the
worker's lease; the same one again is answered as a repetition, a different one
of the same batch as equivocation. What earlier rounds counted is not known here:
that is `recent_rounds`, which `admission` asks first. Pure; called by `round`.
"""

from dataclasses import replace

from pliska.coordinator.rounds.leasing import lease_after_arrival, lease_on_request
from pliska.coordinator.rounds.round_events import Answer, Step
from pliska.coordinator.rounds.round_state import Offered, Phase, RoundState, Slot, SlotState
from pliska.coordinator.wire import ReplyCode


def offer_slot(state: RoundState, offer: Offered, lag_max: int) -> Step:
    """Decide on a verified offer; the step has exactly one `Answer`.

    Args:
        state: Where the round stands.
        offer: What is offered.
        lag_max: How old a base may be; with 0, a closed round takes nothing more.
    """
    slot = state.slot_of(offer.worker)
    if slot is not None and slot.offer == offer:
        return Step(state, (_repeated(slot),))
    if state.phase is Phase.WAITING:
        return Step(state, (Answer(ReplyCode.BUSY, f"round {state.round} {state.reason}"),))
    goes_on = state.sealed is not None and lag_max > 0
    if state.phase is not Phase.COLLECTING and not goes_on:
        return Step(state, (Answer(ReplyCode.STALE_ROUND, f"round {state.round} is closed"),))
    if state.members.get(offer.worker) != offer.incarnation:
        reason = "joined after the round opened; the next round takes it in"
        return Step(state, (Answer(ReplyCode.BUSY, reason),))
    if slot is None or _is_abandoned(slot, offer):
        leased = lease_on_request(state, offer.worker, lag_max)
        own = leased.leases.of(offer.worker)
        return _take(leased, offer) if offer.lease == own else _turn_back(leased, offer, own)
    if slot.offer.round != offer.round:
        return _offer_beside(state, slot, offer)
    if slot.offer.incarnation != offer.incarnation:
        reason = "an earlier life of this worker has filled the slot"
        return Step(state, (Answer(ReplyCode.DUPLICATE, reason),))
    if slot.offer.lease != offer.lease:
        return _turn_back(state, offer, slot.offer.lease)
    return _equivocated(state, slot, offer)


def fill_slot(state: RoundState, slot: Slot, now: float, lag_max: int) -> RoundState:
    """Take in what a payload turned out to be, unless the round went on without it.

    Args:
        state: Where the round stands.
        slot: The offer, with what became of it.
        now: Seconds on the clock of `state.opened_at`.
        lag_max: How old a base may be.
    """
    offer = slot.offer
    if not _is_receiving(state, offer):
        return state
    opened_at = state.opened_at.get(offer.round)
    turn_s = None if opened_at is None else now - opened_at
    if turn_s is not None:
        state = replace(state, turns=state.turns.followed_by(offer.worker, turn_s))
    if state.joined - offer.round > lag_max:
        return release_slot(state, offer)  # the model went on too far while it arrived
    leases = lease_after_arrival(state, slot, lag_max)
    return _with_slot(replace(state, leases=leases), replace(slot, turn_s=turn_s))


def release_slot(state: RoundState, offer: Offered) -> RoundState:
    """Free the slot of a payload that did not come whole."""
    if not _is_receiving(state, offer):
        return state
    return replace(state, slots={w: s for w, s in state.slots.items() if w != offer.worker})


def _take(state: RoundState, offer: Offered) -> Step:
    taken = _with_slot(state, Slot(offer, SlotState.RECEIVING))
    return Step(taken, (Answer(ReplyCode.ACCEPTED),))


def _turn_back(state: RoundState, offer: Offered, own: int | None) -> Step:
    """Refuse the gradient of another batch than the worker's, and name the right one."""
    right = "none is leased to it yet" if own is None else f"it holds lease {own}"
    reason = f"computed on the batch of lease {offer.lease}; {right}"
    return Step(state, (Answer(ReplyCode.STALE_LEASE, reason, own),))


def _offer_beside(state: RoundState, slot: Slot, offer: Offered) -> Step:
    """Answer an offer for another version than the one that the worker's slot is for."""
    if offer.round < slot.offer.round:
        reason = f"its gradient for round {slot.offer.round} came before this older one"
        return Step(state, (Answer(ReplyCode.STALE_ROUND, reason),))
    reason = f"its gradient for round {slot.offer.round} comes first"
    return Step(state, (Answer(ReplyCode.BUSY, reason),))


def _equivocated(state: RoundState, slot: Slot, offer: Offered) -> Step:
    """Let neither of two gradients for one slot count, unless one is being aggregated already."""
    reason = f"two different gradients were signed for round {offer.round}"
    answer = Answer(ReplyCode.EQUIVOCATION, reason)
    if offer.worker not in state.slots:
        return Step(state, (answer,))
    return Step(_with_slot(state, Slot(slot.offer, SlotState.FROZEN, reason)), (answer,))


def _repeated(slot: Slot) -> Answer:
    """Answer an offer that was made before, so that a worker may always try again."""
    match slot.state:
        case SlotState.RECEIVING:
            return Answer(ReplyCode.BUSY, "this gradient is still being received")
        case SlotState.FROZEN:
            return Answer(ReplyCode.EQUIVOCATION, slot.reason)
        case SlotState.FILLED | SlotState.REFUSED | SlotState.OUTVOTED:
            return Answer(ReplyCode.DUPLICATE, slot.reason)


def _is_abandoned(slot: Slot, offer: Offered) -> bool:
    """Whether the slot waits for a payload that a process that is gone was sending."""
    return slot.state is SlotState.RECEIVING and slot.offer.incarnation != offer.incarnation


def _is_receiving(state: RoundState, offer: Offered) -> bool:
    slot = state.slots.get(offer.worker)
    return slot is not None and slot.offer == offer and slot.state is SlotState.RECEIVING


def _with_slot(state: RoundState, slot: Slot) -> RoundState:
    return replace(state, slots={**state.slots, slot.offer.worker: slot})
