"""Nearest-neighbour mixing: every row becomes the mean of those nearest to it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from pliska.aggregation.points import Mixture, Points
from pliska.aggregation.preaggregation import PreAggregator
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class NNM(PreAggregator):
    """y_i = mean of the n - f rows nearest to x_i, itself among them; the rule sees the y.

    Of equally near rows the earlier worker counts. A row counts as nearest to
    itself even beside a twin.

    Source: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, "Fixing by
    mixing: a recipe for optimal Byzantine ML under heterogeneity", AISTATS
    2023, Algorithm 2. Bound n >= 2f + 1. Cost O(n^2 d) for the distances, of
    which the rule makes use too, and a 0/1 matrix of n x n. No deviation.
    """

    name: ClassVar[str] = "nnm"
    needs_geometry: ClassVar[bool] = True

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int, points: int) -> int:
        """A majority must be honest; as many points as rows are made."""
        return max(points, 2 * f + 1)

    def mix(self, points: Points, setting: Setting) -> Mixture:
        """Return the 0/1 matrix of neighbours, divided by their number."""
        geometry = points.geometry
        n, count = geometry.n, geometry.n - setting.f
        among = geometry.between_rows.numpy().copy()
        np.fill_diagonal(among, -1.0)
        nearest = among.argsort(axis=1, kind="stable")[:, :count]
        matrix = np.zeros((n, len(geometry.distances)))
        matrix[np.arange(n)[:, None], nearest] = 1 / count
        return Mixture(torch.from_numpy(matrix), range(n))
