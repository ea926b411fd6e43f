"""Which batch of the training data each worker reads: every batch of a pass is counted once.

A *pass* goes once through the training data in an order drawn from the job's
seed. It is cut into batches, and a *lease* is the right to one of them,
numbered through all passes. A lease is done when a committed round has counted
the gradient that came of it; one that was not counted, because its worker died
or its gradient was refused, is leased again before any new one. What is done
stands in the commit record, so a new leader goes on where the last commit left
off, and nobody has to be asked what was under way.

Pure. `coordinator.driver` leases at the opening of a round, `coordinator.stepper`
settles at its commit; the batch behind a number is drawn by `coordinator.batches`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count, islice, pairwise
from typing import Annotated

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.wire.encoding import Length
from pliska.coordinator.wire.job import WORKERS_MAX

AHEAD_MAX = 64 * WORKERS_MAX
"""Leases beyond the first unfinished one that a cursor remembers as done."""


@dataclass(frozen=True, slots=True)
class DataCursor:
    """The leases that are done, as each commit record states them.

    Attributes:
        before: All leases below this number are done.
        ahead: The done ones above it, ascending.
    """

    before: int = 0
    ahead: Annotated[tuple[int, ...], Length(0, AHEAD_MAX)] = ()

    def __post_init__(self) -> None:
        """Refuse what no sequence of commits leads to.

        Raises:
            DamagedStateError: `ahead` is not ascending above `before`.
        """
        bounds = (self.before, *self.ahead)
        if any(low >= high for low, high in pairwise(bounds)):
            raise DamagedStateError(f"no data cursor: {self.before}, then {self.ahead[:4]}")

    def is_done(self, lease: int) -> bool:
        """Whether a committed round has counted this lease."""
        return lease < self.before or lease in self.ahead

    def settle(self, leases: Iterable[int]) -> "DataCursor":
        """Return the cursor after a commit that counted these leases."""
        done = {*self.ahead, *(lease for lease in leases if lease >= self.before)}
        before = next(number for number in count(self.before) if number not in done)
        return DataCursor(before, tuple(sorted(lease for lease in done if lease > before)))


@dataclass(frozen=True, slots=True)
class DataLeases:
    """What is done and who holds what.

    Attributes:
        cursor: As of the last commit.
        held: The lease of each worker that may still send a gradient for it.
    """

    cursor: DataCursor = DataCursor()
    held: Mapping[str, int] = field(default_factory=dict)


def lease_to(leases: DataLeases, workers: Iterable[str], turn: int) -> DataLeases:
    """Give each of these workers a lease; one that holds one keeps it, others give theirs back.

    The lowest free leases are given, so that what was given back comes first.
    Who gets which turns with every round: a worker whose gradients never count
    cannot keep the same batch from being trained on.

    Args:
        leases: Before.
        workers: All that may send a gradient now; the answer does not depend
            on their order.
        turn: Grows with every round.
    """
    present = sorted(workers)
    kept = {worker: leases.held[worker] for worker in present if worker in leases.held}
    without = [worker for worker in present if worker not in kept]
    shift = turn % len(without) if without else 0
    taken = set(kept.values())
    free = (
        number
        for number in count(leases.cursor.before)
        if number not in taken and not leases.cursor.is_done(number)
    )
    given = zip([*without[shift:], *without[:shift]], islice(free, len(without)), strict=True)
    return DataLeases(leases.cursor, {**kept, **dict(given)})


def settle(leases: DataLeases, counted: Iterable[int]) -> DataLeases:
    """Take a commit into account: the counted leases are done and held by nobody."""
    cursor = leases.cursor.settle(counted)
    held = {worker: lease for worker, lease in leases.held.items() if not cursor.is_done(lease)}
    return DataLeases(cursor, held)


def give_back(leases: DataLeases) -> DataLeases:
    """Take back every lease that is not done, as a round does that ends without its workers."""
    return DataLeases(leases.cursor)
