"""What reaches a round and what leaves it: events, and the effects that its driver executes.

Values only; `rounds.round` decides on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pliska.coordinator.records.data_leases import DataCursor
from pliska.coordinator.records.mode import ModeSetting
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.rounds.round_state import Offered, RoundState, Sealed
from pliska.coordinator.wire import ReplyCode


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """The set of live workers changed."""

    present: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ModeRequested:
    """The store holds another mode for the job."""

    setting: ModeSetting


@dataclass(frozen=True, slots=True)
class RollbackReady:
    """The job is to be rolled back; the state to restore is at hand."""

    rollback: Rollback


@dataclass(frozen=True, slots=True)
class Asked:
    """A worker asks which batch it is to compute on."""

    worker: str


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
class Filtered:
    """None of the sealed gradients passed the Lipschitz filter; reasons by worker."""

    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Committed:
    """The round, or the rollback, is durable; its record stands in the store with this cursor."""

    cursor: DataCursor


Event = (
    Tick
    | MembersChanged
    | ModeRequested
    | RollbackReady
    | Offered
    | Asked
    | Received
    | Refused
    | Broken
    | Aggregated
    | AggregationFailed
    | Filtered
    | Committed
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: what the offering worker is told. ACCEPTED means: read the payload into its row.

    Attributes:
        lease: With STALE_LEASE, the one that it is to compute on, if there is one.
    """

    code: ReplyCode
    reason: str = ""
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """Effect: the round collects; rows of `kept` workers, complete or not, stay as they are."""

    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Effect: gradients were given up; workers that wait for a version are to send again."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Effect: combine the contributors' rows; each refused one spends one of f."""

    sealed: Sealed


@dataclass(frozen=True, slots=True)
class Commit:
    """Effect: write the log entry, then the commit record, fenced by the epoch."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Effect: give up all gradients and commit a rollback, fenced by the epoch."""

    rollback: Rollback


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: hand the committed version to the workers."""


Effect = Answer | Opened | Recall | Aggregate | Commit | Restore | Publish


@dataclass(frozen=True, slots=True)
class Step:
    """The next state and what to do about it."""

    state: RoundState
    effects: tuple[Effect, ...] = ()
