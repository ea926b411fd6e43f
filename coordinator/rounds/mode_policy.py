"""When a job with `policy = "auto"` goes to another mode.

Stragglers are what speaks for leaving the synchronous mode: above one share of
them the rounds lean toward the hybrid mode, below a lower one back. Where too
few prompt workers are left to fill the hybrid mode's buffer, they lean toward
the asynchronous one. A mode is changed only after so many rounds in a row have
leaned the same way. Pure; `mode_control` asks and acts.
"""

from dataclasses import dataclass

from pliska.coordinator.records.mode import Mode
from pliska.coordinator.rounds.gathering import Gatherings

SHARE_HIGH = 0.25
"""Share of stragglers from which rounds lean away from the synchronous mode."""
SHARE_LOW = 0.1
"""Share of stragglers up to which they lean back."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the rounds look like now.

    Attributes:
        round: The round at hand.
        present: Live workers.
        stragglers: Those among them that take much longer (see `turns`).
    """

    round: int
    present: int
    stragglers: int


@dataclass(frozen=True, slots=True)
class Leaning:
    """The mode that the rounds of late speak for.

    Attributes:
        since: The first round in a row that spoke for it.
        reason: Why, for people.
    """

    mode: Mode
    since: int
    reason: str


def lean(
    before: Leaning | None, in_force: Mode, measured: Measured, gatherings: Gatherings
) -> Leaning:
    """Say what the rounds speak for now.

    Args:
        before: The leaning so far.
        in_force: The mode that they are run in.
        measured: Of the round at hand.
        gatherings: What each mode needs.
    """
    mode, reason = _wanted(in_force, measured, gatherings)
    goes_on = before is not None and before.mode is mode
    return Leaning(mode, before.since if before and goes_on else measured.round, reason)


def is_due(leaning: Leaning, in_force: Mode, round_number: int, patience: int) -> bool:
    """Whether it is time to go where the rounds lean.

    Args:
        leaning: Now.
        in_force: The mode that they are run in.
        round_number: The round at hand.
        patience: Rounds in a row that must have leaned that way.
    """
    return leaning.mode is not in_force and round_number - leaning.since >= patience


def _wanted(in_force: Mode, measured: Measured, gatherings: Gatherings) -> tuple[Mode, str]:
    if not measured.present:
        return in_force, "nobody is here"
    share = measured.stragglers / measured.present
    slow = f"{measured.stragglers} of {measured.present} workers are stragglers"
    if share <= SHARE_LOW:
        return Mode.SYNCHRONOUS, slow
    if share < SHARE_HIGH:
        return in_force, slow
    prompt = measured.present - measured.stragglers
    needed = gatherings.hybrid.rows_full or gatherings.hybrid.rows_least
    if prompt >= needed or _shortage(Mode.ASYNCHRONOUS, measured.present, gatherings):
        wanted = Mode.HYBRID
    else:
        wanted = Mode.ASYNCHRONOUS
        slow = f"{slow}, and {prompt} are too few for a buffer of {needed}"
    if _shortage(wanted, measured.present, gatherings):
        return in_force, f"{slow}, but there are too few workers for the {wanted} mode"
    return wanted, slow


def _shortage(mode: Mode, present: int, gatherings: Gatherings) -> str | None:
    return gatherings.of(mode, is_primed=False).shortage_of_workers(present)
