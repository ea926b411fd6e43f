"""How few are too few: the bound on n and f of whatever protects a round.

Asked in every round with the number that is really there, since f may be a
share of it. What is below the bound waits or is given up with this reason;
nothing falls back to a weaker rule. Values only, so that the rounds stay pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pliska.aggregation import Rule
from pliska.aggregation.errors import BoundError, SearchLimitError
from pliska.aggregation.faults import Faults, faults_among

FILTER = "the Lipschitz filter"
"""What protects asynchronous rounds of one buffer (see `pliska.aggregation.Kardam`)."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Which numbers are too few.

    Attributes:
        shortages: Why, by number; what is missing here is enough.
    """

    shortages: Mapping[int, str]

    @classmethod
    def of_rule(cls, rule: Rule, n_max: int) -> "Floor":
        """Ask a rule about every number up to `n_max`."""
        return cls._asked(rule.check, n_max)

    @classmethod
    def of_filter(cls, f: Faults, n_max: int) -> "Floor":
        """Apply the filter's bound, n >= 3f + 1, to every number up to `n_max`."""

        def check(n: int) -> None:
            faults = filter_faults(f, n)
            if n < 3 * faults + 1:
                raise BoundError(FILTER, n, faults, "n >= 3f + 1", 3 * faults + 1)

        return cls._asked(check, n_max)

    @classmethod
    def _asked(cls, check: Callable[[int], None], n_max: int) -> "Floor":
        shortages = {}
        for n in range(n_max + 1):
            try:
                check(n)
            except (BoundError, SearchLimitError) as error:
                shortages[n] = str(error)
        return cls(MappingProxyType(shortages))

    def shortage(self, n: int) -> str | None:
        """Say why `n` are too few; None where they are enough."""
        return self.shortages.get(n)

    def least(self) -> int:
        """Return the smallest number that is enough."""
        return next(n for n in range(len(self.shortages) + 1) if n not in self.shortages)


def filter_faults(f: Faults, n: int) -> int:
    """Return f as a count among n workers, for the filter's bound."""
    return faults_among(f, n, lambda faults: 3 * faults + 1)
