"""CAF, the covariance-bound-agnostic filter: weight falls along the direction of largest spread."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import Choice
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class CAF(DistanceRule):
    """Weighted mean at which the weighted covariance's top eigenvalue was least.

    From weights c = 1, repeat while their sum exceeds n - 2f: with the weighted
    mean mu and the covariance's top eigenvector v, let t_i = <x_i - mu, v>^2 and
    multiply c_i by 1 - t_i / max t. The aggregate is the mu that came with the
    least eigenvalue, the first of equals.

    Source: Allouah, Guerraoui, Stephan, "Towards trustworthy federated learning
    with untrusted participants", ICML 2025, Algorithm 2. Breakdown point
    (n-1)/2: bound n >= 2f + 1. Cost O(n^2 d) for the inner products, then
    O(n^3) for each of at most n steps: the eigenvector is exact, and each step
    takes at least one row out. No deviation; with f = 0 or rows that do not
    differ, the plain mean. The report's margin is the weight relative to an
    equal share, minus 1.
    """

    name: ClassVar[str] = "caf"

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Filter until enough weight is gone; keep the flattest moment."""
        n = geometry.n
        weights = filtered(geometry.about(geometry.medoid)[:n, :n], n - 2 * setting.f).tolist()
        return Choice(
            weights=weights,
            margins=[n * weight - 1 for weight in weights],
            reasons=[f"{n * weight:.3g} times an equal share" for weight in weights],
        )


def filtered(gram: Tensor, enough: int) -> Tensor:
    """Return the weights, summing to 1, at which the covariance was flattest.

    Args:
        gram: Inner products about any point near the honest ones, float64 [n, n].
        enough: The sum of weights at which filtering ends.
    """
    counted = torch.ones(len(gram), dtype=torch.float64)
    best, least = counted / len(gram), torch.inf
    for _ in range(len(gram)):
        total = counted.sum()
        if total <= 0:
            break
        share = counted / total
        along = gram @ share
        centred = gram - along[:, None] - along[None, :] + share @ along
        root = share.sqrt()
        values, vectors = torch.linalg.eigh(root[:, None] * centred * root[None, :])
        top = float(values[-1])
        if top < least:
            best, least = share, top
        if top <= 0 or total <= enough:
            break
        spread = (centred @ (root * vectors[:, -1])).square()
        spread[counted == 0] = 0.0
        counted = counted * (1 - spread / spread.max())
    return best
