"""What the leader's snapshots have told of one run so far.

No I/O: `training` asks for the snapshots (`GET /v1/status`) and hands them in.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pliska.trainer.demo.display import RunSnapshot
from pliska.trainer.demo.facts import EventKind, Measurement
from pliska.trainer.demo.jobs import DemoJob
from pliska.trainer.demo.journal import Journal


class Observation:
    """Accumulates snapshots, across changes of the leader.

    A new leader begins with no suspicion against anybody, so whoever was
    flagged by one leader stays flagged here.

    Attributes:
        round: The last committed round.
        leader: Who leads; None while nobody answers.
        flagged: Workers that were ever suspected.
        suspects: Workers that the leader suspects now.
        reason: What the round waits for, in the leader's words.
    """

    def __init__(self, job: DemoJob, journal: Journal) -> None:
        """Begin with nothing known."""
        self.job = job
        self.round = 0
        self.leader: str | None = None
        self.flagged: frozenset[str] = frozenset()
        self.suspects: frozenset[str] = frozenset()
        self.reason = "no leader yet"
        self._journal = journal
        self._epoch: int | None = None
        self._accuracy: dict[int, float] = {}

    def take(self, status: Mapping[str, Any]) -> None:
        """Learn from a leader's snapshot."""
        self.round = status["version"]
        self.reason = status["reason"]
        for measured in status["accuracy"]:
            self._accuracy[measured["version"]] = measured["accuracy"]
        suspects = frozenset(
            worker["worker"] for worker in status["workers"] if worker["is_suspected"]
        )
        if self._epoch is None:
            self._note(EventKind.LED, [status["coordinator"]], "leads")
        if self._epoch == status["epoch"]:
            self._note(EventKind.CLEARED, self.suspects - suspects, "no longer suspected")
        self._note(EventKind.FLAGGED, suspects - self.flagged, "suspected")
        self._epoch = status["epoch"]
        self.leader = status["coordinator"]
        self.suspects = suspects
        self.flagged |= suspects

    def miss(self) -> None:
        """Learn that no leader answers."""
        self.leader = None

    def conclude(self, accuracy: float) -> None:
        """Add what the last version, measured after the run, turned out to be."""
        self.round = self.job.rounds
        self._accuracy[self.job.rounds] = accuracy

    @property
    def curve(self) -> tuple[Measurement, ...]:
        """Accuracy by round."""
        return tuple(Measurement(*measured) for measured in sorted(self._accuracy.items()))

    @property
    def snapshot(self) -> RunSnapshot:
        """What a display shows."""
        newest = max(self._accuracy, default=None)
        return RunSnapshot(
            run=self.job.run,
            rule=self.job.rule,
            round=self.round,
            rounds=self.job.rounds,
            accuracy=None if newest is None else self._accuracy[newest],
            leader=self.leader,
            suspects=tuple(sorted(self.suspects)),
        )

    def _note(self, kind: EventKind, names: Iterable[str], text: str) -> None:
        for name in sorted(names):
            self._journal.note(kind, self.job.run, self.round, f"{name} {text}")
