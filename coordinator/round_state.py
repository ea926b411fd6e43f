"""What a round is made of: its state, the events that reach it, the effects that leave it.

Values only; `coordinator.round` decides on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto

from pliska.coordinator.wire import ReplyCode, Signed


class Phase(StrEnum):
    """Where the job stands between two committed rounds."""

    WAITING = auto()
    """For enough workers to open the round."""
    COLLECTING = auto()
    AGGREGATING = auto()
    """The round is sealed; its rows are being combined and the model stepped."""
    COMMITTING = auto()
    """The log entry and the commit record are being written."""
    FINISHED = auto()
    HALTED = auto()
    """The round cannot be finished; `reason` says why. An operator must act."""


class SlotState(StrEnum):
    """What became of the one gradient that a worker may contribute to a round."""

    RECEIVING = auto()
    FILLED = auto()
    REFUSED = auto()
    """Its content was bad; the worker has spent its vote."""
    FROZEN = auto()
    """Two different signed gradients for one slot; neither counts."""


@dataclass(frozen=True, slots=True)
class Offered:
    """A verified header of this round asks for its worker's slot.

    Attributes:
        header: As it was signed; the same gradient may come under several.
    """

    worker: str
    incarnation: bytes
    root: bytes
    header: Signed | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Slot:
    """The first verified offer of a worker for this round, and what became of it."""

    offer: Offered
    state: SlotState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """How many workers a round needs and how long it waits.

    Attributes:
        workers: The first round opens at once when so many are there.
        quorum: Gradients that a round needs, those of bad content included,
            since each spends one of the rule's f.
        soft_deadline_s: After this long the round closes with the quorum;
            a round also opens with the quorum after waiting this long for more.
        deadline_s: After this long without the quorum the round reopens.
        rounds: The job ends after this many.
        aborts_max: Aborts in a row after which the job halts.
    """

    workers: int
    quorum: int
    soft_deadline_s: float
    deadline_s: float
    rounds: int
    aborts_max: int = 5


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
    reason: str = "waiting for workers"

    def arrived(self) -> int:
        """Count the slots that are settled, whatever became of them."""
        return sum(slot.state is not SlotState.RECEIVING for slot in self.slots.values())

    def workers_in(self, slot_state: SlotState) -> tuple[str, ...]:
        """List the workers whose slot has this state, in canonical order."""
        return tuple(sorted(w for w, slot in self.slots.items() if slot.state is slot_state))


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """The set of live workers changed."""

    present: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Received:
    """The payload is verified and lies in its row."""

    offer: Offered


@dataclass(frozen=True, slots=True)
class Refused:
    """The payload is what was signed, but its content is bad; it spends the worker's vote."""

    offer: Offered
    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The transfer ended before the payload was complete; the worker may send it again."""

    offer: Offered


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The rows were combined and the model stepped."""


@dataclass(frozen=True, slots=True)
class AggregationFailed:
    """The rows that arrived cannot be aggregated."""

    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The round is durable and its commit record stands in the store."""


Event = (
    Tick
    | MembersChanged
    | Offered
    | Received
    | Refused
    | Broken
    | Aggregated
    | AggregationFailed
    | Committed
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: what the offering worker is told. ACCEPTED means: read the payload into its row."""

    code: ReplyCode
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """Effect: the round collects; rows of `kept` workers, complete or not, stay as they are."""

    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Effect: combine the rows of `contributors`; each of `refused` spends one of f."""

    contributors: tuple[str, ...]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Commit:
    """Effect: write the log entry, then the commit record, fenced by the epoch."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: hand the committed version to the workers."""


Effect = Answer | Opened | Aggregate | Commit | Publish


@dataclass(frozen=True, slots=True)
class Step:
    """The next state and what to do about it."""

    state: RoundState
    effects: tuple[Effect, ...] = ()
