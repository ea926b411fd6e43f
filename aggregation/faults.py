"""How many faults a rule shall bear: a count, a fraction of the workers, or `auto`.

A fraction is rounded up, because rounding down bears nothing for few workers.
`auto` counts the rows that lie clearly apart and never exceeds what the rule's
bound allows. It finds blatant liars only: an attack that hides among the honest
leaves no gap, so where attacks are expected, say a count.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pliska.aggregation.errors import ParameterError
from pliska.aggregation.geometry import Geometry

Faults = int | float | Literal["auto"]
"""f of a rule: a count from 0, a fraction in (0, 1/2), or "auto"."""

GAP = 3.0
"""`auto` takes a row for a liar that lies this many times as far out as the last it must trust."""

ROWS_MAX = 1024
"""A fraction that no number of workers up to this satisfies can never be borne."""


@dataclass(frozen=True, slots=True)
class FaultCount:
    """How many faults were borne in one aggregation.

    Attributes:
        count: f as a count, refused rows included.
        reason: Where it comes from, for people.
    """

    count: int
    reason: str


def require_faults(value: object) -> None:
    """Raise `ParameterError` unless `value` can be an f."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    is_fraction = isinstance(value, float) and 0 < value < 0.5
    if not (is_count or is_fraction or value == "auto"):
        raise ParameterError(
            'f must be a whole number of at least 0, a fraction between 0 and 0.5 or "auto", '
            f"not {value!r}"
        )


def most_faults(n: int, rows_least: Callable[[int], int]) -> int:
    """Return the largest f below n/2 whose bound n satisfies, or 0.

    Args:
        n: Workers.
        rows_least: The smallest n by f.
    """
    return max((f for f in range((n + 1) // 2) if rows_least(f) <= n), default=0)


def faults_among(f: Faults, n: int, rows_least: Callable[[int], int]) -> int:
    """Return f as a count among n workers; for `auto` the most that the bound allows."""
    if isinstance(f, str):
        return most_faults(n, rows_least)
    # A multiple of a binary fraction such as 0.1 * 10 must not round up by its last bit.
    return f if isinstance(f, int) else math.ceil(f * n - 1e-9)


def smallest_n(f: Faults, rows_least: Callable[[int], int]) -> int:
    """Return the smallest n of workers that can bear f; for `auto`, one fault.

    Raises:
        ParameterError: No number of workers satisfies the bound with this fraction.
    """
    if isinstance(f, int):
        return rows_least(f)
    if isinstance(f, str):
        return rows_least(1)
    for n in range(1, ROWS_MAX + 1):
        if rows_least(faults_among(f, n, rows_least)) <= n:
            return n
    raise ParameterError(f"no number of workers can bear a fraction of f = {f:g} with this rule")


def outliers(geometry: Geometry, most: int) -> FaultCount:
    """Count the rows that lie clearly apart: the `auto` of f.

    Rows are ranked by distance from the medoid. The n - most nearest must be
    trusted anyway; a row more than `GAP` times as far out as the last of them
    counts. At least 1 if `most` allows it, because hidden liars leave no gap.

    Args:
        geometry: Of the rows that passed the gate.
        most: What the bound allows beside the refused rows.
    """
    radii = geometry.between_rows[geometry.medoid].sqrt().tolist()
    border = sorted(radii)[len(radii) - most - 1]
    apart = sum(radius > GAP * border for radius in radii)
    count = max(apart, min(1, most))
    return FaultCount(
        count,
        f"auto: {apart} rows lie more than {GAP:g} times as far out as the {len(radii) - most} "
        f"nearest; the bound allows {most}",
    )
