"""How many rows a rule needs: what follows from its f and from what comes before it.

Numbers only, no rows: it can be asked before any worker is there. Base of `Rule`
(`aggregator`), which adds the call.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.errors import BoundError, ParameterError
from pliska.aggregation.faults import Faults, faults_among, require_faults, smallest_n
from pliska.aggregation.preaggregation import Chain

NOTHING_BEFORE = Chain()
"""The rows reach the rule as they are."""


@dataclass(frozen=True, kw_only=True)
class Bounded(ABC):
    """The faults that a rule bears, and its requirement on n.

    Attributes:
        f: Faults to bear: rows that may be arbitrary, refused ones included. A
            count, a fraction of n (rounded up) or "auto" (see `faults`).
        pre: What maps the rows first; written `NNM() | MultiKrum(f=2)`.
    """

    name: ClassVar[str]
    """Name in a job file."""

    f: Faults
    pre: Chain = NOTHING_BEFORE

    def __post_init__(self) -> None:
        require_faults(self.f)
        for member in self.pre.members:
            if member.f not in (None, self.f):
                raise ParameterError(
                    f"{member.name} bears f = {member.f}, but {self.name} f = {self.f}: "
                    "write the same, or leave it out before the rule"
                )
        smallest_n(self.f, self.rows_needed)

    @property
    @abstractmethod
    def bound(self) -> str:
        """The rule's requirement on n as a formula, such as `n >= 2f + 3`."""

    @abstractmethod
    def rows_least(self, f: int) -> int:
        """Return the smallest number of points with which this rule bears f faults."""

    @property
    def title(self) -> str:
        """The rule with what comes before it, as written in code."""
        return " | ".join([*(member.name for member in self.pre.members), self.name])

    @property
    def whole_bound(self) -> str:
        """The requirement on n of the rule and of what comes before it."""
        return " and ".join([self.bound, *(member.bound for member in self.pre.members)])

    def rows_needed(self, f: int) -> int:
        """Return the smallest n with which rule and pre-aggregators bear f faults."""
        return self.pre.rows_least(f, self.rows_least(f))

    @property
    def rows_min(self) -> int:
        """The smallest n with which this rule bears its f."""
        return smallest_n(self.f, self.rows_needed)

    def points_of(self, n: int, f: int) -> int:
        """Return how many points the n rows are that reach this rule, after what comes before."""
        return max(points for points in range(n + 1) if self.pre.rows_least(f, points) <= n)

    def check(self, n: int) -> None:
        """Say before any row is there whether n workers, refused ones included, will do.

        Raises:
            BoundError: They are too few.
            SearchLimitError: They are too many for an exact search.
        """
        f = 1 if self.f == "auto" else faults_among(self.f, n, self.rows_needed)
        if n < self.rows_needed(f):
            raise BoundError(self.title, n, f, self.whole_bound, max(self.rows_min, n + 1))
