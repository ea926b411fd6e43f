"""Centered clipping: small steps from a trusted centre towards rows, none longer than tau."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.engine.sums import copied
from pliska.aggregation.errors import ParameterError
from pliska.aggregation.geometric_median import Vector, median_weights
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.parameters import require_count, require_positive
from pliska.aggregation.points import Choice, Combination, Points
from pliska.aggregation.setting import Memory, Setting

CENTRE = "centre"
"""Name of the last aggregate, in the memory and as a landmark."""


@dataclass(frozen=True, kw_only=True)
class CenteredClipping(DistanceRule):
    """Repeat v <- v + mean over i of (x_i - v) min(1, tau / |x_i - v|).

    v starts at the last aggregate, the vector `centre` in the memory; pass
    `Aggregation.memory` of one round to the next. Without it, in the first
    round, v starts at the geometric median: from the plain mean or a random
    row, liars would choose the start. With voting masses the mean is weighted
    by them.

    Source: Karimireddy, He, Jaggi, "Learning from history for Byzantine robust
    optimization", ICML 2021, Section 4 (Algorithm 2). Breakdown point
    (n-1)/2 for the start: bound n >= 2f + 1 (Theorem III needs f/n below a
    constant near 0.1 for its rate). Cost O(n^2 d) for the inner products,
    O(n^2) a step, one weighted sum of n + 1 vectors. Deviations: the robust
    start, and `tau=None`. History-based attacks on the rule are known (Ozfatura
    et al., "Byzantines can also learn from history", 2022); mix with `NNM` or
    `Bucketing` first. The report's margin is tau / |x_i - v| - 1: below 0 for
    clipped rows.

    Attributes:
        tau: Clipping radius, in the unit of the rows. None takes the median
            distance of the rows from the start, so that nothing depends on
            their scale and half of them are not clipped.
        iterations: Steps, from 1; the paper uses 1 to 3.
    """

    name: ClassVar[str] = "centered-clipping"
    uses: ClassVar[frozenset[str]] = frozenset({"masses", "memory"})
    rebuilds_memory: ClassVar[bool] = True

    tau: float | None = None
    iterations: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("iterations", self.iterations, 1)
        if self.tau is not None:
            require_positive("tau", self.tau)

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def landmarks(self, setting: Setting) -> Mapping[str, Tensor]:
        """The last aggregate, if there is one."""
        if setting.memory is None:
            return {}
        if setting.memory.keys() != {CENTRE}:
            raise ParameterError(
                f"the memory of centered-clipping is one vector, the last aggregate as {CENTRE!r}"
            )
        return {CENTRE: setting.memory[CENTRE]}

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Take all steps on the weights of the rows and of the last aggregate."""
        n, p = geometry.n, len(geometry.distances)
        votes = np.array(setting.masses or [1.0] * n) / n
        view = geometry.seen_from(geometry.medoid)
        weights = np.zeros(p)
        if CENTRE in geometry.landmarks:
            weights[geometry.landmarks[CENTRE]] = 1.0
        else:
            weights[:n] = median_weights(geometry, setting.masses)

        def gaps_now() -> Vector:
            gaps: Vector = np.sqrt(view.squared_distances_to(weights)[:n])
            return gaps

        gaps = gaps_now()
        tau = float(np.sort(gaps)[(n - 1) // 2]) if self.tau is None else float(self.tau)
        for _ in range(self.iterations):
            pull = votes * _reach(tau, gaps).clip(max=1.0)
            weights = weights * (1 - pull.sum())
            weights[:n] += pull
            gaps = gaps_now()
        reach = _reach(tau, gaps)
        return Choice(
            weights=weights.tolist(),
            margins=(reach - 1).tolist(),
            reasons=[
                f"clipped to {share:.0%} of its distance" if share < 1 else "not clipped"
                for share in reach.tolist()
            ],
        )

    def combine(self, points: Points, setting: Setting) -> Combination:
        """Clip, and remember the aggregate."""
        made = super().combine(points, setting)
        return replace(made, memory=self.memory_after(made.vector))

    def memory_after(self, vector: Tensor) -> Memory:
        """The next round starts here."""
        return {CENTRE: copied(vector)}


def _reach(tau: float, gaps: Vector) -> Vector:
    """Return tau / gaps, and where there is no gap infinity; tau = 0 reaches only what is there."""
    most = np.inf if tau > 0 else 1.0
    reach: Vector = np.divide(tau, gaps, out=np.full_like(gaps, most), where=gaps > 0)
    return reach
