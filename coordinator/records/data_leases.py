"""Which batch of the training data each worker reads: every batch of a pass is counted once.

A *pass* goes once through the training data in an order drawn from the job's
seed. It is cut into batches, and a *lease* is the right to one of them,
numbered through all passes. A lease is done when a committed round has counted
the gradient that came of it; one that was not counted, because its worker died
or its gradient came late or was refused, is leased again before any new one.
What is done stands in the commit record, so a new leader goes on where the last
commit left off, and nobody has to be asked what was under way.

Pure. `leasing` says when the round machine does what; the batch behind a number
is drawn by `training.batches`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count, islice, pairwise
from typing import Annotated

from pliska.coordinator.wire.encoding import Length
from pliska.coordinator.wire.errors import MalformedError
from pliska.coordinator.wire.limits import MEMBERS_MAX

LEFT_MAX = 4 * MEMBERS_MAX
"""Leases below the end of a cursor that are not done.

No new lease is given while an older one is free, so there are never more than
can be under way at once: one that each member works on, and those of two rounds.
"""


@dataclass(frozen=True, slots=True)
class DataCursor:
    """The leases that are done, as each commit record states them.

    Attributes:
        end: All leases below this number are done, but
        left: these, ascending.
    """

    end: int = 0
    left: Annotated[tuple[int, ...], Length(0, LEFT_MAX)] = ()

    def __post_init__(self) -> None:
        """Refuse what no sequence of commits leads to, and a second way to write one down.

        Raises:
            MalformedError: `left` is not ascending below the last lease that is done.
        """
        bounds = (-1, *self.left, self.end - 1)
        if len(self.left) > LEFT_MAX or (
            (self.left or self.end) and any(low >= high for low, high in pairwise(bounds))
        ):
            raise MalformedError(f"no data cursor: end {self.end}, left {self.left[:4]}")

    def is_done(self, lease: int) -> bool:
        """Whether a committed round has counted this lease."""
        return bool(self.done_among((lease,)))

    def done_among(self, leases: Iterable[int]) -> frozenset[int]:
        """Return those of these leases that a committed round has counted."""
        left = frozenset(self.left)
        return frozenset(lease for lease in leases if lease < self.end and lease not in left)

    def settle(self, leases: Iterable[int]) -> "DataCursor":
        """Return the cursor after a commit that counted these leases.

        Raises:
            MalformedError: So many others would be left that nobody leased them.
        """
        counted = frozenset(leases)
        end = max(self.end, max(counted, default=-1) + 1)
        if end - self.end > LEFT_MAX + len(counted):
            raise MalformedError(f"lease {end - 1} is too far ahead of {self.end}")
        left = {*self.left, *range(self.end, end)} - counted
        return DataCursor(end, tuple(sorted(left)))


@dataclass(frozen=True, slots=True)
class Held:
    """A lease that a worker may still send a gradient for.

    Attributes:
        since: The round in which its worker was last told of it.
    """

    lease: int
    since: int


@dataclass(frozen=True, slots=True)
class DataLeases:
    """What is done and who holds what.

    Attributes:
        cursor: As of the last commit.
        held: By worker, the lease of its next gradient.
    """

    cursor: DataCursor = DataCursor()
    held: Mapping[str, Held] = field(default_factory=dict)

    def of(self, worker: str) -> int | None:
        """Return the lease of a worker's next gradient; None where it has none."""
        held = self.held.get(worker)
        return None if held is None else held.lease


def lease_to(
    leases: DataLeases,
    workers: Iterable[str],
    round_number: int,
    under_way: Collection[int] = frozenset(),
) -> DataLeases:
    """Give each of these workers a lease; one that holds one keeps it.

    The lowest free leases are given, so that what was given back comes first.
    Who gets which turns with every round: a worker whose gradients never count
    cannot keep the same batch from being trained on.

    Args:
        leases: Before.
        workers: The answer does not depend on their order.
        round_number: At hand.
        under_way: Leases of gradients that are here and not committed.
    """
    asking = sorted(workers)
    kept = {w: Held(leases.held[w].lease, round_number) for w in asking if w in leases.held}
    without = [worker for worker in asking if worker not in kept]
    shift = round_number % len(without) if without else 0
    free = islice(_free(leases, under_way), len(without))
    given = zip([*without[shift:], *without[:shift]], free, strict=True)
    new = {worker: Held(lease, round_number) for worker, lease in given}
    return DataLeases(leases.cursor, {**leases.held, **kept, **new})


def keep(leases: DataLeases, workers: Collection[str], since: int) -> DataLeases:
    """Take back the leases of all but these workers, and those of before round `since`."""
    held = {w: each for w, each in leases.held.items() if w in workers and each.since >= since}
    return DataLeases(leases.cursor, held)


def hand_in(leases: DataLeases, lease: int) -> DataLeases:
    """Note that the gradient of a lease is here: its worker may have another one."""
    held = {worker: each for worker, each in leases.held.items() if each.lease != lease}
    return DataLeases(leases.cursor, held)


def settle(leases: DataLeases, cursor: DataCursor) -> DataLeases:
    """Take a commit into account, after which the cursor is this: what is done, nobody holds."""
    done = cursor.done_among(each.lease for each in leases.held.values())
    held = {w: each for w, each in leases.held.items() if each.lease not in done}
    return DataLeases(cursor, held)


def _free(leases: DataLeases, under_way: Collection[int]) -> Iterator[int]:
    """List what may be leased, lowest first."""
    taken = {*under_way, *(each.lease for each in leases.held.values())}
    undone = chain(leases.cursor.left, count(leases.cursor.end))
    return (lease for lease in undone if lease not in taken)
