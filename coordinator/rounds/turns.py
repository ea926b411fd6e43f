"""How long workers take for a gradient, and who is a straggler by that.

A turn is the time from the opening of the round that a gradient was computed
for to its arrival: it means the same in every mode. What has not come when a
synchronous round closes counts with the time it has taken so far, or else a
deadline made from turns would only ever shrink. Part of the pure state of the
rounds.
"""

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median

TURNS_MAX = 256
"""So many of the newest turns are remembered."""
STRAGGLER_FACTOR = 2.0
"""A straggler takes more than so many times as long as the median worker."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One worker's time for one gradient."""

    worker: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Turns:
    """The newest turns of a job.

    Attributes:
        recent: Oldest first, at most `TURNS_MAX`.
    """

    recent: tuple[Turn, ...] = ()

    def followed_by(self, worker: str, seconds: float) -> "Turns":
        """Return the turns with one more."""
        return Turns((*self.recent, Turn(worker, seconds))[-TURNS_MAX:])

    def seconds(self) -> tuple[float, ...]:
        """Return the durations, oldest first."""
        return tuple(turn.seconds for turn in self.recent)

    def stragglers(self, present: Collection[str]) -> frozenset[str]:
        """Return the workers that take much longer than the others.

        Args:
            present: The live workers; nobody else is judged.
        """
        by_worker: dict[str, list[float]] = {}
        for turn in self.recent:
            if turn.worker in present:
                by_worker.setdefault(turn.worker, []).append(turn.seconds)
        if not by_worker:
            return frozenset()
        typical = {worker: median(taken) for worker, taken in by_worker.items()}
        limit = STRAGGLER_FACTOR * median(typical.values())
        return frozenset(worker for worker, taken in typical.items() if taken > limit)
