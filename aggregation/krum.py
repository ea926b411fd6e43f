"""Krum: the row whose nearest neighbours are nearest."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from torch import Tensor

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.distances import row_blocks
from pliska.aggregation.errors import ParameterError
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import Choice, mean_of
from pliska.aggregation.setting import Setting

Variant = Literal["blanchard", "kappa"]
"""How many neighbours count: the paper's n-f-2, or n-f-1 as in the kappa-robustness literature."""


@dataclass(frozen=True, kw_only=True)
class Krum(DistanceRule):
    """The row with the least score s(i), the sum of squared distances to its n-f-2 nearest others.

    Of equal scores the first worker in canonical order wins. The aggregate is
    that row, bit for bit.

    Source: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with
    adversaries: Byzantine tolerant gradient descent", NeurIPS 2017, Section 4.
    Bound 2f + 2 < n (Proposition 1). Cost O(n^2 d) for the distances, then
    O(n^2 log n). The report's margin is 1 - s(i) / border, where the border
    lies half way between the last kept and the first outvoted score.

    Attributes:
        variant: "blanchard" counts n-f-2 neighbours as the paper does. "kappa"
            counts n-f-1, as ByzFL and ByzPy do, whose theory takes the row
            itself as one of the n-f; it needs only n >= 2f + 1. On the same
            rows they may choose differently.
    """

    name: ClassVar[str] = "krum"

    variant: Variant = "blanchard"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_variant(self.variant)

    @property
    def bound(self) -> str:
        """That of the variant."""
        return krum_bound(self.variant)

    def rows_least(self, f: int) -> int:
        """The smallest n that satisfies `bound`."""
        return krum_rows_min(f, self.variant)

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Give all weight to the row of least score."""
        scores = krum_scores(geometry.between_rows, setting.f, self.variant)
        return keep_best(scores, 1)


def require_variant(variant: object) -> None:
    """Raise `ParameterError` unless `variant` is one there is."""
    if variant not in get_args(Variant):
        known = " or ".join(repr(name) for name in get_args(Variant))
        raise ParameterError(f"variant must be {known}, not {variant!r}")


def krum_bound(variant: Variant) -> str:
    """Return the formula for which the variant's theory holds."""
    return "n >= 2f + 3" if variant == "blanchard" else "n >= 2f + 1 and n >= f + 2"


def krum_rows_min(f: int, variant: Variant) -> int:
    """Return the smallest n that satisfies `krum_bound`."""
    return 2 * f + 3 if variant == "blanchard" else max(2 * f + 1, f + 2)


def krum_scores(distances: Tensor, f: int, variant: Variant) -> list[float]:
    """Return each row's sum of squared distances to its nearest others.

    Args:
        distances: Squared distances, float64 [n, n], zero diagonal.
        f: Faults to bear.
        variant: How many neighbours count.
    """
    n = len(distances)
    neighbours = n - f - 2 if variant == "blanchard" else n - f - 1
    # A row is not its own neighbour. Its place in the sorted order would not
    # tell which entry is itself: another row may be at distance zero too.
    scores: list[float] = []
    for some in row_blocks(n):
        others = distances[some].numpy().copy()
        np.fill_diagonal(others[:, some], np.inf)
        others.sort(axis=1)
        scores += others[:, :neighbours].sum(axis=1).tolist()
    return scores


def keep_best(scores: list[float], m: int) -> Choice:
    """Share the weight equally among the m rows of least score; the first of equals wins."""
    n = len(scores)
    ranking = sorted(range(n), key=lambda i: (scores[i], i))
    border = (scores[ranking[m - 1]] + scores[ranking[min(m, n - 1)]]) / 2
    ranks = {row: rank + 1 for rank, row in enumerate(ranking)}
    return Choice(
        weights=mean_of(ranking[:m], n),
        margins=[_margin(scores[i], border) for i in range(n)],
        reasons=[
            f"Krum score {scores[i]:.4g}, rank {ranks[i]} of {n}; the best {m} are kept"
            for i in range(n)
        ],
    )


def _margin(score: float, border: float) -> float:
    return 1 - score / border if border > 0 else -score
