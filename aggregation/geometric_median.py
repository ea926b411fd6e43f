"""The geometric median: the point of least total distance to all rows."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import Choice
from pliska.aggregation.setting import Setting

ITERATIONS_MAX = 2000
"""Weiszfeld steps; each costs O(n^2), and most inputs need fewer than a hundred."""
STEP_MIN = 1e-12
"""Iteration ends when a step is shorter than this share of the median distance."""
TOLERANCE = 1e-9
"""Relative error that is allowed for in the test whether a row is itself the median."""

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(DistanceRule):
    """The v that minimises the sum over i of w_i |v - x_i|, with w_i = 1 or the voting mass.

    A row is the median exactly if the pull of the others on it, the length of
    the sum of w_i times the unit vectors towards them, does not exceed its own
    mass; then it is returned (the mean of all such rows, where the minimum is
    not unique). Otherwise Weiszfeld's iteration is run to convergence, on the
    n weights of the rows; nothing depends on the scale or the origin of the
    rows, and points that coincide divide by nothing.

    Source: Pillutla, Kakade, Harchaoui, "Robust aggregation for federated
    learning", IEEE TSP 2022, Section 3 (RFA); the test is Vardi and Zhang's,
    PNAS 97(4), 2000. Breakdown point (n-1)/2: bound n >= 2f + 1. Cost
    O(n^2 d) for the inner products, O(n^2) a step, one weighted sum. Deviation:
    RFA stops after a few steps and smooths with a fixed floor nu, which makes
    short rows a plain mean; here neither. The report's margin is the weight
    relative to an equal share, minus 1.
    """

    name: ClassVar[str] = "geometric-median"
    uses: ClassVar[frozenset[str]] = frozenset({"masses"})

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Weigh the rows so that their mean is the median."""
        weights = median_weights(geometry, setting.masses)
        n = geometry.n
        return Choice(
            weights=weights,
            margins=[n * weight - 1 for weight in weights],
            reasons=[f"{n * weight:.3g} times an equal share" for weight in weights],
        )


def median_weights(geometry: Geometry, masses: tuple[float, ...] | None = None) -> list[float]:
    """Return weights of the n points that make their geometric median; they sum to 1."""
    n = geometry.n
    mass = np.ones(n) if masses is None else np.array(masses)
    view = geometry.seen_from(geometry.medoid)
    radii, cosines = view.radii[:n], view.cosines[:n, :n]
    apart = np.sqrt(geometry.between_rows.numpy())
    best = _nearly_best(_relative_sums(mass, radii, cosines, apart))
    medians = [k for k in best if _is_median(geometry, mass, k)]
    if medians:
        return [1 / len(medians) if k in medians else 0.0 for k in range(n)]
    gaps = apart[best[0]].copy()
    gaps[gaps == 0] = gaps[gaps > 0].min()
    weights: list[float] = _weiszfeld(mass, radii, cosines, mass / gaps).tolist()
    return weights


def _relative_sums(mass: Vector, radii: Vector, cosines: Vector, apart: Vector) -> Vector:
    """Return each row's sum of distances less that of the medoid.

    Formed term by term as (a^2 - b^2) / (a + b), so that one huge distance
    does not swallow the differences.
    """
    total = apart + radii[None, :]
    gain = radii[:, None] * (radii[:, None] - 2 * radii[None, :] * cosines)
    terms = np.divide(gain, total, out=np.zeros_like(total), where=total > 0)
    sums: Vector = terms @ mass
    return sums


def _nearly_best(sums: Vector) -> list[int]:
    """Return the rows whose sum is least, up to rounding, best first."""
    order = np.argsort(sums, kind="stable")
    middle = len(sums) // 2
    border = sums[order[0]] + TOLERANCE * float(np.partition(np.abs(sums), middle)[middle])
    best: list[int] = order[sums[order] <= border].tolist()
    return best


def _is_median(geometry: Geometry, mass: Vector, k: int) -> bool:
    """Say whether no direction leads downhill from row k (Vardi and Zhang, theorem 1)."""
    cosines = geometry.seen_from(k).cosines[: geometry.n, : geometry.n]
    own = float(mass[geometry.between_rows[k].numpy() == 0].sum())
    pull = float(mass @ cosines @ mass)
    return pull <= (own * (1 + TOLERANCE)) ** 2


def _weiszfeld(mass: Vector, radii: Vector, cosines: Vector, start: Vector) -> Vector:
    weights: Vector = start / start.sum()
    middle = len(start) // 2
    for _ in range(ITERATIONS_MAX):
        reach = weights * radii
        along = cosines @ reach
        squared = radii * (radii - 2 * along) + max(float(reach @ along), 0.0)
        gaps = np.sqrt(np.maximum(squared, 0.0))
        scale = float(np.partition(gaps, middle)[middle])
        pull = mass / np.maximum(gaps, STEP_MIN * scale)
        following = pull / pull.sum()
        moved = (following - weights) * radii
        weights = following
        if float(moved @ cosines @ moved) <= (STEP_MIN * scale) ** 2:
            break
    return weights
