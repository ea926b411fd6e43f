"""Who came to a round, when, and who did not: a value of the commit record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pliska.coordinator.wire.encoding import Length, Name
from pliska.coordinator.wire.limits import MEMBERS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """When a worker's gradient was complete, in seconds after the round opened."""

    worker: Name
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attendance:
    """Who came to a round, and who did not.

    Attributes:
        arrivals: Sorted by worker.
        absent: Workers that were there when the round opened, and from whom it
            had nothing when it closed; sorted.
        excluded: Workers in quarantine whose gradients were refused; sorted.
        spared: Workers in quarantine that took part because the round needed them.
    """

    arrivals: Annotated[tuple[Arrival, ...], Length(0, MEMBERS_MAX)] = ()
    absent: Annotated[tuple[Name, ...], Length(0, MEMBERS_MAX)] = ()
    excluded: Annotated[tuple[Name, ...], Length(0, MEMBERS_MAX)] = ()
    spared: Annotated[tuple[Name, ...], Length(0, MEMBERS_MAX)] = ()


NOBODY_ASKED = Attendance()
"""Of a round that nobody was to come to."""


def arrivals(after_s: Mapping[str, float]) -> tuple[Arrival, ...]:
    """Return arrivals, sorted by worker."""
    return tuple(Arrival(worker=worker, after_s=after_s[worker]) for worker in sorted(after_s))
