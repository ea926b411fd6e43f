"""How far behind the model gradients are, and what that takes off their weight.

A gradient's lag is how many versions the model advanced after the one that it
was computed on. Pure numbers; which lag is still taken is `gathering`'s.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean


def damping(lag: int, exponent: float) -> float:
    """Return the factor, in (0, 1], on a gradient that comes late: `(1 + lag) ** -exponent`.

    Source: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, "Federated
    learning with buffered asynchronous aggregation", AISTATS 2022, Section 5,
    with exponent 1/2.

    Args:
        lag: Versions, from 0.
        exponent: How steeply age counts; 0: not at all.
    """
    return float((1 + lag) ** -exponent)


@dataclass(frozen=True, slots=True)
class LagSummary:
    """The lags of some gradients.

    Attributes:
        count: How many gradients.
        mean: Of their lags; 0 where there are none.
        most: The longest.
        late_share: Share of the gradients with a lag above 0.
    """

    count: int
    mean: float
    most: int
    late_share: float

    @classmethod
    def of(cls, lags: Iterable[int]) -> "LagSummary":
        """Summarize."""
        known = list(lags)
        if not known:
            return cls(0, 0.0, 0, 0.0)
        late = sum(lag > 0 for lag in known)
        return cls(len(known), fmean(known), max(known), late / len(known))
