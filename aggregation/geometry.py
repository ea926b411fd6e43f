"""Points known by their inner products and distances: all that distance rules look at.

A geometry is p x p numbers, whatever the dimension. It follows affine maps of
its points (`mixed`), so that pre-aggregators never build their rows, and
measures how far every point lies from a weighted mean, so that iterative
rules never read the rows again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.distances import centred_gram, distances_within, row_blocks
from pliska.aggregation.rows import Rows


@dataclass(frozen=True, eq=False)
class Geometry:
    """The mutual position of points: n of rows, then those of landmarks.

    Attributes:
        gram: Inner products of the points less a common centre, float64 [p, p].
        distances: Squared distances, float64 [p, p], zero on the diagonal. Not
            derived from `gram` where that would cancel.
        n: Points that stand for rows.
        landmarks: Index by name of the others, such as the origin.
    """

    gram: Tensor
    distances: Tensor
    n: int
    landmarks: Mapping[str, int]
    _views: dict[int, "View"] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, rows: Rows, landmarks: tuple[str, ...] = ()) -> "Geometry":
        """Measure rows, the last of which are the named landmarks: O(p^2 d), one read."""
        gram = centred_gram(rows)
        n = rows.n - len(landmarks)
        names = {name: n + i for i, name in enumerate(landmarks)}
        return cls(gram, distances_within(rows, gram), n, names)

    @property
    def between_rows(self) -> Tensor:
        """Squared distances between the points of rows, float64 [n, n]."""
        return self.distances[: self.n, : self.n]

    @cached_property
    def medoid(self) -> int:
        """The row whose median distance to the others is least; the first of equals.

        With a majority of honest rows it lies within reach of them, whatever
        the others are.
        """
        distances, middle = self.between_rows.numpy(), self.n // 2
        medians = [np.sort(distances[some], axis=1)[:, middle] for some in row_blocks(self.n)]
        return int(np.concatenate(medians).argmin())

    def about(self, centre: int) -> Tensor:
        """Return the inner products of all points less point `centre`, float64 [p, p].

        They follow from the Gram matrix and from the distances; each entry is
        taken from the one that cancels less.
        """
        gram, distances = self.gram.numpy(), self.distances.numpy()
        lengths = np.sqrt(gram.diagonal().clip(min=0))
        lengths = lengths + lengths[centre]
        from_centre = distances[centre]
        inner = np.empty_like(gram)
        for some in row_blocks(len(gram)):
            moved = gram[some] - gram[some, [centre]] - gram[[centre], :] + gram[centre, centre]
            polar = (from_centre[some, None] + from_centre - distances[some]) / 2
            largest = np.maximum(from_centre[some, None], from_centre)
            np.maximum(largest, distances[some], out=largest)
            inner[some] = np.where(largest < lengths[some, None] * lengths, polar, moved)
        np.fill_diagonal(inner, from_centre)
        return torch.from_numpy(inner)

    def seen_from(self, centre: int) -> "View":
        """Return directions and lengths of all points as seen from one of them; kept."""
        if centre not in self._views:
            inner = self.about(centre).numpy()
            radii = np.sqrt(self.distances[centre].numpy())
            inverse = np.divide(1.0, radii, out=np.zeros_like(radii), where=radii > 0)
            inner *= inverse[:, None]
            inner *= inverse
            self._views[centre] = View(radii, inner)
        return self._views[centre]

    def mixed(self, matrix: Tensor) -> "Geometry":
        """Return the geometry of `matrix` times the points; the landmarks stay as they are.

        Args:
            matrix: float64 [m, p], each row summing to 1.
        """
        landmarks = torch.eye(len(self.distances), dtype=torch.float64)[self.n :]
        whole = torch.vstack([matrix, landmarks])
        m = len(matrix)
        distances = torch.stack([self._squared_lengths(whole - row) for row in whole])
        distances = torch.maximum(distances, distances.T).fill_diagonal_(0.0)
        names = {name: m + i for i, name in enumerate(self.landmarks)}
        return Geometry(whole @ self.gram @ whole.T, distances, m, names)

    def _squared_lengths(self, differences: Tensor) -> Tensor:
        """Return |u X|^2 for each row u of `differences`, which sums to 0: -u D u / 2."""
        return (-(differences @ self.distances * differences).sum(dim=1) / 2).clamp(min=0)


@dataclass(frozen=True, slots=True)
class View:
    """Points in polar form about one of them.

    A far point has a large radius and an ordinary direction. So a point at 1e38
    with a weight of 1e-38 does not blur the distances among the near ones,
    which it would in the Gram matrix or among squared distances.

    Attributes:
        radii: Distance of each point from the centre, float64 [p].
        cosines: Cosine of the angle between each two, float64 [p, p]; zero for
            points on the centre.
    """

    radii: NDArray[np.float64]
    cosines: NDArray[np.float64]

    def squared_distances_to(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the squared distance of each point to the sum of weights[i] * point i.

        Args:
            weights: float64 [p], summing to 1.
        """
        reach = weights * self.radii
        along = self.cosines @ reach
        length = max(float(reach @ along), 0.0)
        squared = self.radii * (self.radii - 2 * along) + length
        return np.maximum(squared, 0.0)
