"""What a run of the demonstration has shown: facts, without a judgement.

Plain values that the orchestration fills in and `claims`, `report` and `chart`
read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pliska.trainer.demo.jobs import RunName
from pliska.trainer.demo.options import DemoOptions


class EventKind(StrEnum):
    """What can be worth a mark on the chart."""

    STARTED = "started"
    LED = "led"
    FLAGGED = "flagged"
    CLEARED = "cleared"
    LEADER_KILLED = "leader-killed"
    TAKEN_OVER = "taken-over"
    FINISHED = "finished"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled-back"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        kind: What.
        run: In which run; None for what concerns the registry.
        round: The last committed round at that time, 0 before the first.
        elapsed_s: Seconds since the demonstration began.
        text: The same for people.
    """

    kind: EventKind
    run: RunName | None
    round: int
    elapsed_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """The model of one version on the test data.

    Attributes:
        round: The round that made it.
        accuracy: Share of the test images that it reads right, 0 to 1.
    """

    round: int
    accuracy: float


@dataclass(frozen=True, slots=True)
class CommittedRound:
    """One committed round and the version that it made."""

    round: int
    digest: str


@dataclass(frozen=True, slots=True)
class Takeover:
    """The death of the leader and what followed.

    Attributes:
        killed: The coordinator that led, and was killed.
        successor: The one that leads since.
        round: The last round known to be committed at the kill.
        takeover_s: From the kill to the successor's leadership.
        before: The rounds known to be committed at the kill.
    """

    killed: str
    successor: str
    round: int
    takeover_s: float
    before: tuple[CommittedRound, ...]


@dataclass(frozen=True, slots=True)
class Rollback:
    """What the alias `prod` named, from the poisoned promotion to the rollback.

    Attributes:
        good: The version of the robust run.
        poisoned: The version promoted after it: where the rollback started.
        restored: What the alias names after the rollback.
        duration_s: How long the rollback command took.
    """

    good: int
    poisoned: int
    restored: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class DemoFacts:
    """Everything that one demonstration has shown.

    Attributes:
        options: What was asked for.
        curves: Measurements of each run, by rising round.
        committed: The robust run's committed rounds in the log's order.
        takeover: None when no leader was killed.
        flagged: Workers of the robust run that were ever suspected.
        suspected_at_end: Those that still were when it ended.
        rollback: None when it was not reached.
        events: In the order in which they happened.
        elapsed_s: From the start of the command to the last fact.
        memory_bytes_max: The most that all processes took together.
    """

    options: DemoOptions
    curves: Mapping[RunName, tuple[Measurement, ...]]
    committed: tuple[CommittedRound, ...]
    takeover: Takeover | None
    flagged: frozenset[str]
    suspected_at_end: frozenset[str]
    rollback: Rollback | None
    elapsed_s: float
    memory_bytes_max: int
    events: tuple[Event, ...] = field(default=())

    def accuracy(self, run: RunName) -> float | None:
        """Return the accuracy of the run's last version, None when it was not measured."""
        curve = self.curves.get(run, ())
        return curve[-1].accuracy if curve else None

    @property
    def lost_rounds(self) -> tuple[int, ...]:
        """Rounds known to be committed before the kill that are gone, or are others, at the end."""
        if self.takeover is None:
            return ()
        kept = {committed.round: committed.digest for committed in self.committed}
        return tuple(
            before.round
            for before in self.takeover.before
            if kept.get(before.round) != before.digest
        )
