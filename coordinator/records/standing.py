"""How a worker stands by its conduct: values that travel in log entries and commit records.

`reputation` decides on them. Whether a worker is alive is another matter, and
`members`'.
"""

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Annotated

from pliska.coordinator.wire.encoding import Digest, Length, Name
from pliska.coordinator.wire.limits import WHY_CHARACTERS_MAX

STANDINGS_MAX = 4096
"""Workers that are remembered; beyond, those in good standing seen longest ago are forgotten."""

Why = Annotated[str, Length(0, 4 * WHY_CHARACTERS_MAX)]
"""A short reason, for people."""


class StandingState(StrEnum):
    """What a worker's past conduct means for its next gradient."""

    GOOD = auto()
    PROBATION = auto()
    """Its gradients count, and are recomputed more often."""
    QUARANTINE = auto()
    """Its gradients are refused while the rounds can do without them."""
    EXCLUDED = auto()
    """A rollback went on without it: its gradients are refused for the rest of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is remembered of one worker.

    Attributes:
        suspicion: Moving share of its gradients that counted against it, 0 to 1.
        since: Round in which the state began.
        seen: Last round that judged it.
        rounds: Gradients of it that were judged.
        outvoted: Of those, how many the rule gave no weight.
        refused: Of those, how many were refused for their content.
        offences: Of those, how many counted against it.
        quarantines: How often it has been in quarantine.
        was_suspected: Whether it has ever been on probation or in quarantine.
        reason: What counted against it last.
    """

    worker: Name
    state: StandingState = StandingState.GOOD
    suspicion: float = 0.0
    since: int = 0
    seen: int = 0
    rounds: int = 0
    outvoted: int = 0
    refused: int = 0
    offences: int = 0
    quarantines: int = 0
    was_suspected: bool = False
    reason: Why = ""

    @property
    def is_suspected(self) -> bool:
        """Whether it is on probation, in quarantine or excluded."""
        return self.state is not StandingState.GOOD

    @property
    def cut(self) -> int:
        """How many of its gradients got no weight in the aggregate."""
        return self.outvoted + self.refused

    @property
    def cut_share(self) -> float:
        """Share of its gradients that got no weight: what robustness cost this worker."""
        return self.cut / self.rounds if self.rounds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingChange:
    """A worker's state changed in this round, and why."""

    worker: Name
    before: StandingState
    after: StandingState
    reason: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Conviction:
    """Kept evidence proves that a worker lied.

    Attributes:
        offence: Kind of the evidence.
        evidence: SHA-256 of the kept evidence.
    """

    worker: Name
    offence: Name
    evidence: Digest
    reason: Why
