"""When the round machine leases batches, and whose lease a gradient has to name.

In a mode whose rounds take no late gradients, every member is given its lease
when the round opens: it follows from the committed cursor, the members and the
round, and from nobody's haste. In the others a worker is given one when it asks,
which it does whenever it downloads a version; it may then have a gradient under
way and work on the next one. A lease that was not heard of for as many rounds as
a gradient may be late goes to whoever asks first.

Pure; called by `round` and `slots`. What leases are is `data_leases`.
"""

from dataclasses import replace

from pliska.coordinator.records.data_leases import (
    DataCursor,
    DataLeases,
    hand_in,
    keep,
    lease_to,
    settle,
)
from pliska.coordinator.rounds.round_state import RoundState, Slot


def lease_at_opening(opened: RoundState, lag_max: int) -> DataLeases:
    """Return the leases with which a round opens.

    Args:
        opened: With the members of this attempt.
        lag_max: How old a base may be.
    """
    members, leases = opened.members, opened.leases
    if lag_max:
        return keep(leases, members, opened.round - lag_max)
    if opened.attempt == 1:
        leases = DataLeases(leases.cursor)
    kept = keep(leases, members, opened.round)
    return lease_to(kept, members, opened.round, _under_way(opened))


def lease_on_request(state: RoundState, worker: str, lag_max: int) -> RoundState:
    """Give a worker that asks its lease, where it need not wait for a round to open."""
    if not lag_max or worker not in state.present:
        return state
    leases = lease_to(state.leases, [worker], state.round, _under_way(state))
    return replace(state, leases=leases)


def lease_after_arrival(state: RoundState, slot: Slot, lag_max: int) -> DataLeases:
    """Return the leases once a gradient is here: where it may count later, another can follow."""
    return hand_in(state.leases, slot.offer.lease) if lag_max else state.leases


def lease_after_commit(state: RoundState, cursor: DataCursor, lag_max: int) -> DataLeases:
    """Return the leases once a round is committed: where its late gradients can count, they stay.

    Args:
        state: Before.
        cursor: After the commit.
        lag_max: How old a base may be.
    """
    return settle(state.leases, cursor) if lag_max else DataLeases(cursor)


def _under_way(state: RoundState) -> frozenset[int]:
    """List the leases of gradients that are here, or arriving, and not committed."""
    sealed = state.sealed.slots.values() if state.sealed is not None else ()
    return frozenset(slot.offer.lease for slot in (*state.slots.values(), *sealed))
