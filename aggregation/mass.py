"""Voting mass: workers that count for more than one vote, and a cap on how much more.

Masses come from the caller's own registry. A weight that a worker claims in
its message is a lie waiting to be told: one that claims a billion samples owns
a mean weighted by claims.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pliska.aggregation.errors import MassError, ParameterError

CAP = 3.0
"""No worker votes with more than so many times the median mass, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class VotingMass:
    """Votes by worker.

    Attributes:
        by_worker: Mass of each worker, positive; a worker with a row but no
            mass is an error, further workers do not matter.
        cap: Largest mass in multiples of the median of the round, at least 1.
    """

    by_worker: Mapping[str, float]
    cap: float = CAP

    def __post_init__(self) -> None:
        for worker, mass in self.by_worker.items():
            if not (mass > 0 and math.isfinite(mass)):
                raise ParameterError(
                    f"the mass of worker {worker!r} must be a positive number, not {mass!r}"
                )
        if not (self.cap >= 1 and math.isfinite(self.cap)):
            raise ParameterError(f"cap must be a number of at least 1, not {self.cap!r}")

    def among(self, workers: Sequence[str]) -> tuple[float, ...]:
        """Return the capped masses of these workers, scaled to average 1.

        Raises:
            ParameterError: A worker has no mass.
        """
        for worker in workers:
            if worker not in self.by_worker:
                raise ParameterError(f"worker {worker!r} has a row but no voting mass")
        limit = self.cap * median(self.by_worker[worker] for worker in workers)
        capped = [min(self.by_worker[worker], limit) for worker in workers]
        scale = len(capped) / math.fsum(capped)
        return tuple(mass * scale for mass in capped)


def faulty_mass(masses: Sequence[float], f: int) -> float:
    """Return the most mass that f workers can hold: that of the heaviest f."""
    return math.fsum(sorted(masses, reverse=True)[:f])


def require_honest_majority(name: str, masses: Sequence[float], f: int) -> None:
    """Raise `MassError` if the heaviest f workers hold half of the mass or more."""
    total, faulty = math.fsum(masses), faulty_mass(masses, f)
    if 2 * faulty >= total:
        raise MassError(name, f, faulty / total)
