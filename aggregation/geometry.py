"""Points known by their inner products and distances: all that distance rules look at.

A geometry is p x p numbers, whatever the dimension. It follows affine maps of
its points (`mixed`), so that pre-aggregators never build their rows, and
measures how far every point lies from a weighted mean, so that iterative
rules never read the rows again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pliska.aggregation.distances import centred_gram, distances_within
from pliska.aggregation.rows import Rows


@dataclass(frozen=True, slots=True)
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

    @property
    def medoid(self) -> int:
        """The row whose median distance to the others is least; the first of equals.

        With a majority of honest rows it lies within reach of them, whatever
        the others are.
        """
        others = self.between_rows.sort(dim=1).values[:, self.n // 2]
        return int(others.argmin())

    def about(self, centre: int) -> Tensor:
        """Return the inner products of all points less point `centre`, float64 [p, p].

        They follow from the Gram matrix and from the distances; each entry is
        taken from the one that cancels less.
        """
        gram, distances = self.gram, self.distances
        moved = gram - gram[:, [centre]] - gram[[centre], :] + gram[centre, centre]
        lengths = gram.diagonal().clamp(min=0).sqrt() + gram[centre, centre].clamp(min=0).sqrt()
        from_centre = distances[centre]
        polar = (from_centre[:, None] + from_centre[None, :] - distances) / 2
        largest = torch.maximum(from_centre[:, None], from_centre[None, :]).maximum(distances)
        inner = torch.where(largest < lengths[:, None] * lengths[None, :], polar, moved)
        return inner.diagonal_scatter(from_centre)

    def seen_from(self, centre: int) -> "View":
        """Return directions and lengths of all points as seen from one of them."""
        inner = self.about(centre)
        radii = self.distances[centre].sqrt()
        inverse = torch.where(radii > 0, 1 / radii, 0.0)
        return View(radii, inner * inverse[:, None] * inverse[None, :])

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

    radii: Tensor
    cosines: Tensor

    def squared_distances_to(self, weights: Tensor) -> Tensor:
        """Return the squared distance of each point to the sum of weights[i] * point i.

        Args:
            weights: float64 [p], summing to 1.
        """
        reach = weights * self.radii
        along = self.cosines @ reach
        length = (reach @ along).clamp(min=0)
        return (self.radii * (self.radii - 2 * along) + length).clamp(min=0)
