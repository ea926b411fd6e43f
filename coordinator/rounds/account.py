"""What the record of a round says of its workers: what each contributed, who came, who did not.

Read off the sealed round and what the rule made of it; pure. `stepper` puts the
contributions and the signed headers into the commit record and its annex, `driver`
asks for the attendance when it closes a round.
"""

from collections.abc import Iterable, Mapping

from pliska.aggregation import WorkerReport
from pliska.coordinator.records.attendance import Attendance, arrivals
from pliska.coordinator.records.commit import Contribution
from pliska.coordinator.rounds.reputation import Quarantine
from pliska.coordinator.rounds.round_state import Sealed
from pliska.coordinator.wire import Signed
from pliska.coordinator.wire.limits import REASON_CHARACTERS_MAX


def contributions_of(
    sealed: Sealed, report: Iterable[WorkerReport], dampings: Mapping[str, float]
) -> tuple[Contribution, ...]:
    """Return what became of each worker's gradient.

    Args:
        sealed: The round.
        report: What the rule or the filter said of each, in the record's order.
        dampings: Factor by worker on its gradient.
    """
    return tuple(
        Contribution(
            worker=entry.worker,
            incarnation=sealed.slots[entry.worker].offer.incarnation,
            lease=sealed.slots[entry.worker].offer.lease,
            payload_root=sealed.slots[entry.worker].offer.root,
            verdict=entry.verdict.value,
            weight=entry.weight,
            score=entry.score,
            margin=entry.margin,
            reason=entry.reason[:REASON_CHARACTERS_MAX],
            lag=sealed.lag(entry.worker),
            damping=dampings[entry.worker],
            buffer=sealed.places.get(entry.worker),
        )
        for entry in report
    )


def headers_of(sealed: Sealed, contributions: Iterable[Contribution]) -> tuple[Signed, ...]:
    """Return the signed headers of the contributions, in their order."""
    headers = (sealed.slots[contribution.worker].offer.header for contribution in contributions)
    return tuple(header for header in headers if header is not None)


def attendance_of(sealed: Sealed, quarantine: Quarantine) -> Attendance:
    """Return who came to the round, who did not, and whom the quarantine kept out or spared."""
    kept_out = set(quarantine.kept_out) - set(sealed.slots)
    turns = {w: slot.turn_s for w, slot in sealed.slots.items() if slot.turn_s is not None}
    return Attendance(
        arrivals=arrivals({w: turns[w] for w in sealed.contributors if w in turns}),
        absent=tuple(sorted(set(sealed.members) - set(sealed.slots) - kept_out)),
        excluded=tuple(sorted(kept_out)),
        spared=tuple(sorted(quarantine.spared)),
    )
