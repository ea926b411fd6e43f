"""Norm clipping: long rows are shortened, to a fixed length or to that of another row."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pliska.aggregation.parameters import require_positive
from pliska.aggregation.points import ORIGIN, Mixture, Points
from pliska.aggregation.preaggregation import PreAggregator
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class LengthLimit(PreAggregator):
    """A pre-aggregator that shortens rows longer than a limit, and leaves the others alone."""

    needs_origin: ClassVar[bool] = True
    keeps_workers: ClassVar[bool] = True

    @abstractmethod
    def limit(self, lengths: Tensor, f: int) -> float:
        """Return the greatest length that a row may keep, given the lengths of all [n]."""

    def mix(self, points: Points, setting: Setting) -> Mixture:
        """Return the map that draws long rows towards the origin."""
        geometry = points.geometry
        origin, n = geometry.landmarks[ORIGIN], geometry.n
        lengths = geometry.distances[origin, :n].sqrt()
        limit = self.limit(lengths, setting.f)
        scale = torch.where(lengths > limit, limit / lengths, 1.0)
        matrix = torch.zeros(n, len(geometry.distances), dtype=torch.float64)
        matrix[:, :n] = scale.diag()
        matrix[:, origin] = 1 - scale
        return Mixture(matrix, range(n))


@dataclass(frozen=True, kw_only=True)
class Clipping(LengthLimit):
    """Static clipping: y_i = x_i min(1, tau / |x_i|).

    Source: folklore, as in Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan,
    "Boosting robustness by clipping gradients in distributed learning", 2024,
    Section 2. Bound: the rule's own. Cost: the lengths of the rows, measured
    along with their distances. No deviation; the rows are not changed.

    Attributes:
        tau: Greatest length, in the unit of the rows.
    """

    name: ClassVar[str] = "clipping"

    tau: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("tau", self.tau)

    @property
    def bound(self) -> str:
        """It asks for no more rows than the rule does."""
        return "n >= 1"

    def rows_least(self, f: int, points: int) -> int:
        """As many points as rows are made."""
        del f
        return points

    def limit(self, lengths: Tensor, f: int) -> float:
        """The same always."""
        del lengths, f
        return float(self.tau)


@dataclass(frozen=True, kw_only=True)
class ARC(LengthLimit):
    """Adaptive robust clipping: shorten the k longest rows to the length of the next one.

    k = floor(2 (f / n) (n - f)), and the limit is the (k+1)-th largest length.

    Source: Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan, "Adaptive
    gradient clipping for robust federated learning", ICLR 2025 (arXiv
    2405.14432), Algorithm 2. Bound n >= 2f + 1. Cost as `Clipping`'s. No
    deviation.
    """

    name: ClassVar[str] = "arc"

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int, points: int) -> int:
        """A majority must be honest; as many points as rows are made."""
        return max(points, 2 * f + 1)

    def limit(self, lengths: Tensor, f: int) -> float:
        """The length of the first row that is not shortened."""
        n = len(lengths)
        k = math.floor(2 * f * (n - f) / n)
        return float(lengths.sort(descending=True).values[k])
