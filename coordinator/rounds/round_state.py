"""What a round is made of: slots, phases, and everything that the next decision depends on.

Values only; `rounds.round` decides on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto

from pliska.aggregation import Rule
from pliska.coordinator.records.data_leases import DataLeases
from pliska.coordinator.records.mode import ModeSetting
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.rounds.gathering import Gatherings
from pliska.coordinator.rounds.turns import Turns
from pliska.coordinator.wire import Signed
from pliska.coordinator.wire.job import Job


class Phase(StrEnum):
    """Where the job stands between two committed rounds."""

    WAITING = auto()
    """For enough workers to open the round."""
    COLLECTING = auto()
    AGGREGATING = auto()
    """The round is sealed; its rows are being combined and the model stepped."""
    COMMITTING = auto()
    """The log entry and the commit record are being written."""
    RESTORING = auto()
    """An older version's state is being committed as the next version."""
    FINISHED = auto()
    HALTED = auto()
    """The round cannot be finished; `reason` says why. An operator must act."""


ENDED = frozenset({Phase.FINISHED, Phase.HALTED})
"""The phases that no round follows."""


class SlotState(StrEnum):
    """What became of the one gradient that a worker may contribute to a round."""

    RECEIVING = auto()
    FILLED = auto()
    REFUSED = auto()
    """Its content was bad; the worker has spent its vote."""
    FROZEN = auto()
    """Two different signed gradients for one slot; neither counts."""
    OUTVOTED = auto()
    """It did not pass the Lipschitz filter; an honest one may not."""


_REFUSED = frozenset({SlotState.REFUSED, SlotState.FROZEN})


@dataclass(frozen=True, slots=True)
class Offered:
    """A verified header asks for its worker's slot.

    Attributes:
        round: That the gradient was made for, one more than its base version.
            With the worker it names the slot: a worker has one gradient for
            each version, whichever round counts it.
        lease: Of the batch that it is the gradient of.
        header: As it was signed; the same gradient may come under several.
    """

    worker: str
    incarnation: bytes
    root: bytes
    round: int
    lease: int
    header: Signed | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Slot:
    """The first verified offer of a worker for a version, and what became of it.

    Attributes:
        turn_s: Seconds from the opening of the offer's round to the whole
            payload; None while it is not here, or where that opening is forgotten.
    """

    offer: Offered
    state: SlotState
    reason: str = ""
    turn_s: float | None = None


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """How the rounds of each mode fill and how long they wait.

    Attributes:
        workers: The first round opens at once when so many are there.
        gatherings: How rounds fill, by mode.
        soft_deadline_s: After this long at least a round closes with what it
            needs; it also opens after waiting this long for more workers.
        deadline_s: After this long without what it needs it reopens.
        soft_deadline_spread: See `soft_deadline`.
        rounds: The job ends after this many.
        aborts_max: Aborts in a row after which the job halts.
    """

    workers: int
    gatherings: Gatherings
    soft_deadline_s: float
    deadline_s: float
    rounds: int
    soft_deadline_spread: float = 5.0
    aborts_max: int = 5

    @classmethod
    def of_job(cls, job: Job, rule: Rule, workers_max: int) -> "RoundOptions":
        """Read them off a job; see `Gatherings.of_job`."""
        rounds = job.rounds
        return cls(
            workers=rounds.workers,
            gatherings=Gatherings.of_job(job, rule, workers_max),
            soft_deadline_s=rounds.soft_deadline_s,
            deadline_s=rounds.deadline_s,
            rounds=rounds.count,
            soft_deadline_spread=rounds.soft_deadline_spread,
        )


@dataclass(frozen=True, slots=True)
class Sealed:
    """A closed round, which is being aggregated and committed.

    Attributes:
        since: When it opened last.
        setting: The mode that it was run in.
        members: The snapshot at which it opened.
        slots: Of every worker that had its say, whatever became of it.
        places: The buffer of each worker; empty where each row stands alone.
        is_filtered: Whether the Lipschitz filter protects it, and not the rule.
    """

    round: int
    since: float
    setting: ModeSetting
    members: Mapping[str, bytes]
    slots: Mapping[str, Slot]
    places: Mapping[str, int] = field(default_factory=dict)
    is_filtered: bool = False

    @property
    def contributors(self) -> tuple[str, ...]:
        """The workers whose rows are to be combined, in canonical order."""
        return workers_in(self.slots, SlotState.FILLED)

    @property
    def refused(self) -> Mapping[str, str]:
        """Why, by worker whose gradient was no gradient; each spends one of the rule's f."""
        return {
            worker: slot.reason for worker, slot in self.slots.items() if slot.state in _REFUSED
        }

    @property
    def outvoted(self) -> Mapping[str, str]:
        """Why, by worker whose gradient did not pass the filter before."""
        return {
            w: slot.reason for w, slot in self.slots.items() if slot.state is SlotState.OUTVOTED
        }

    def lag(self, worker: str) -> int:
        """Return how many versions the model advanced since the base of this worker's gradient."""
        return self.round - self.slots[worker].offer.round


@dataclass(frozen=True, slots=True)
class RoundState:
    """Everything that the next decision depends on.

    Attributes:
        round: The round being worked on, one more than the last committed.
        expected: Workers whose joining opens the round at once.
        present: Live workers and their incarnations, as last reported.
        members: The snapshot of `present` at which the round opened.
        since: When the phase began, seconds on the caller's clock.
        attempt: Counts reopenings of this round, from 1.
        aborts: Aborts in a row.
        slots: Of the gradients that the round at hand may count; while it is
            being aggregated, of those that the next one may.
        sealed: The round that is being aggregated and committed.
        setting: The mode in force, taken up when the round opened.
        requested: The mode asked for last; taken up when a round opens.
        is_primed: Whether the Lipschitz filter has gradients to compare with.
        places: The buffer of each worker; empty where each row stands alone.
        soft_deadline_s: Of the round at hand.
        opened_at: When the rounds opened whose gradients may still count.
        turns: How long gradients took.
        leases: Which batch each worker is to compute on.
        rollback: To be carried out as soon as no round is being aggregated or committed.
    """

    round: int
    expected: int
    since: float
    phase: Phase = Phase.WAITING
    attempt: int = 0
    aborts: int = 0
    present: Mapping[str, bytes] = field(default_factory=dict)
    members: Mapping[str, bytes] = field(default_factory=dict)
    slots: Mapping[str, Slot] = field(default_factory=dict)
    sealed: Sealed | None = None
    setting: ModeSetting = field(default_factory=ModeSetting)
    requested: ModeSetting = field(default_factory=ModeSetting)
    is_primed: bool = False
    places: Mapping[str, int] = field(default_factory=dict)
    soft_deadline_s: float = 0.0
    opened_at: Mapping[int, float] = field(default_factory=dict)
    turns: Turns = field(default_factory=Turns)
    leases: DataLeases = field(default_factory=DataLeases)
    rollback: Rollback | None = None
    reason: str = "waiting for workers"

    @property
    def joined(self) -> int:
        """The round that a gradient which is offered now would count in."""
        return self.round if self.sealed is None else self.round + 1

    def slot_of(self, worker: str) -> Slot | None:
        """Return the newest slot of this worker that is not committed yet."""
        if worker in self.slots or self.sealed is None:
            return self.slots.get(worker)
        return self.sealed.slots.get(worker)


def workers_in(slots: Mapping[str, Slot], state: SlotState) -> tuple[str, ...]:
    """List the workers whose slot has this state, in canonical order."""
    return tuple(sorted(worker for worker, slot in slots.items() if slot.state is state))
