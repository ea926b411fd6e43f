"""What may come before a rule: an affine map of the rows that makes liars easier to bear.

    rule = NNM() | MultiKrum(f=2)

Each pre-aggregator is a file of its own and a frozen dataclass. It answers with
a small matrix and never builds the mapped rows (see `points`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from pliska.aggregation.faults import Faults, require_faults
from pliska.aggregation.points import Mixture, Points
from pliska.aggregation.setting import Setting

T_co = TypeVar("T_co", covariant=True)


class Follower(Protocol[T_co]):
    """What can stand on the right of `|`: a rule, a pre-aggregator or a chain of them."""

    def after(self, chain: "Chain") -> T_co:
        """Return this, preceded by `chain`."""
        ...


@dataclass(frozen=True, kw_only=True)
class PreAggregator(ABC):
    """Base of all pre-aggregators.

    Attributes:
        f: As the rule's f, with which it must agree; None takes the rule's.
    """

    name: ClassVar[str]
    """Name in a job file."""
    needs_origin: ClassVar[bool] = False
    """Whether it measures lengths, not only distances between rows."""
    needs_geometry: ClassVar[bool] = False
    """Whether it measures distances between rows, and nothing else."""
    keeps_workers: ClassVar[bool] = False
    """Whether each point is still one worker's, so that voting masses keep their meaning."""

    f: Faults | None = None

    def __post_init__(self) -> None:
        if self.f is not None:
            require_faults(self.f)

    @property
    @abstractmethod
    def bound(self) -> str:
        """What it asks of n, as part of a sentence."""

    @abstractmethod
    def rows_least(self, f: int, points: int) -> int:
        """Return the smallest n with which it bears f and makes at least `points` points."""

    @abstractmethod
    def mix(self, points: Points, setting: Setting) -> Mixture:
        """Return the map of these points."""

    def after(self, chain: "Chain") -> "Chain":
        """Return the chain with this at its end."""
        return Chain((*chain.members, self))

    def __or__(self, other: Follower[T_co]) -> T_co:
        """Put this before a rule or another pre-aggregator."""
        return other.after(Chain((self,)))


@dataclass(frozen=True, slots=True)
class Chain:
    """Pre-aggregators, one after the other; without members it changes nothing.

    Attributes:
        members: The first comes first.
    """

    members: tuple[PreAggregator, ...] = ()

    @property
    def needs_origin(self) -> bool:
        """Whether any member measures lengths."""
        return any(member.needs_origin for member in self.members)

    @property
    def needs_geometry(self) -> bool:
        """Whether the first member measures distances between rows, and none anything else."""
        return any(member.needs_geometry for member in self.members[:1]) and not self.needs_origin

    @property
    def keeps_workers(self) -> bool:
        """Whether every member keeps one point per worker."""
        return all(member.keeps_workers for member in self.members)

    def rows_least(self, f: int, points: int) -> int:
        """Return the smallest n with which all bear f and at least `points` points are made."""
        for member in reversed(self.members):
            points = member.rows_least(f, points)
        return points

    def apply(self, points: Points, setting: Setting) -> Points:
        """Map the points by one member after the other."""
        for member in self.members:
            points = points.mixed(member.mix(points, setting))
        return points

    def after(self, chain: "Chain") -> "Chain":
        """Return both chains as one."""
        return Chain((*chain.members, *self.members))

    def __or__(self, other: Follower[T_co]) -> T_co:
        """Put these before a rule or another pre-aggregator."""
        return other.after(self)
