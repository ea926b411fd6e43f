"""What a rule combines: the rows, or points that pre-aggregators made of them.

Pre-aggregators are affine maps, kept as a small matrix: a rule sees the
geometry of the mapped points, and its weights are carried back to the rows, so
that the mapped rows are never built whole. `Rule.aggregate` makes the points.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pliska.aggregation.distances import middle_row
from pliska.aggregation.engine.networks import Nearest, Selection
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.order_statistics import BandMean, distances_to, mixed_mean
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Memory

ORIGIN = "origin"
"""Name of the landmark at zero: what lengths and angles of rows are measured from."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a rule decided from the geometry alone.

    Attributes:
        weights: Weight of each point, and of each landmark after them where
            one has weight; all sum to 1.
        margins: How clearly it decided on each point (see `WorkerReport.margin`).
        reasons: The decision on each point for people.
    """

    weights: Sequence[float]
    margins: Sequence[float]
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Mixture:
    """What a pre-aggregator made of points.

    Attributes:
        matrix: Coefficients of the new points in the old ones and the
            landmarks, float64 [m, p]; each row sums to 1.
        places: For each old point the new one that stands for it in reports.
    """

    matrix: Tensor
    places: Sequence[int]


@dataclass(frozen=True, slots=True)
class Standing:
    """How the rows that passed the gate stand to the aggregate, float64 [n] each, in row order.

    Attributes:
        weights: Share of each row in it; they sum to 1, or are all zero.
        distances: Squared distance of each row to it, measured columns only.
        margins: How clearly the rule decided (see `WorkerReport.margin`).
    """

    weights: Tensor
    distances: Tensor
    margins: Tensor


@dataclass(frozen=True, slots=True)
class Combination:
    """What a rule made of the rows that passed the gate.

    Attributes:
        vector: The aggregate [d], in the rows' arithmetic dtype.
        standing: Returns the rows' standing, on the device where it follows
            from. Nobody computes it, or waits for it, before a report is read.
        reasons: Returns the decision on each row for people.
        memory: What the rule wants to be given in the next round.
    """

    vector: Tensor
    standing: Callable[[], Standing]
    reasons: Callable[[], Sequence[str]]
    memory: Memory | None = None


@dataclass(frozen=True, eq=False)
class Points:
    """Rows and landmarks, and the affine map that pre-aggregators made of them.

    Attributes:
        rows: Finite, in canonical order; never mutated.
        landmarks: Further vectors [d] to measure from or start at, by name.
        matrix: The points in terms of rows and landmarks, float64 [m, p]; None
            as long as the points are the rows.
        places: For each row the point that stands for it in reports.
        unmixed: The points before any pre-aggregator, if these are not they.
    """

    rows: Rows
    landmarks: Mapping[str, Tensor]
    matrix: Tensor | None = None
    places: Sequence[int] = ()
    unmixed: "Points | None" = None

    @classmethod
    def of(cls, rows: Rows, landmarks: Mapping[str, Tensor]) -> "Points":
        """Take rows as they are; landmarks are brought to their dtype and device."""
        given = {name: vector.to(rows.tensors[0]) for name, vector in landmarks.items()}
        return cls(rows, given, places=range(rows.n))

    @property
    def n(self) -> int:
        """Number of points, landmarks left out."""
        return self.rows.n if self.matrix is None else len(self.matrix)

    @cached_property
    def geometry(self) -> Geometry:
        """Where the points lie; measured once, when it is first asked for."""
        if self.matrix is None or self.unmixed is None:
            return Geometry.of(self._all, tuple(self.landmarks))
        return self.unmixed.geometry.mixed(self.matrix)

    def mixed(self, mixture: Mixture) -> "Points":
        """Return the points that a pre-aggregator made of these."""
        return replace(
            self,
            matrix=self._to_rows(mixture.matrix),
            places=[mixture.places[place] for place in self.places],
            unmixed=self.unmixed or self,
        )

    def combine(self, choice: Choice) -> Combination:
        """Carry the weights back to the rows and form one weighted sum of those that have any."""
        given = np.zeros(self.n + len(self.landmarks))
        given[: len(choice.weights)] = choice.weights
        weights = self._to_rows(torch.from_numpy(given)[None])[0]
        geometry = (self.unmixed or self).geometry
        added = weights.tolist()
        if ORIGIN in geometry.landmarks:
            added[geometry.landmarks[ORIGIN]] = 0.0  # it adds zero: do not read it
        n, places = self.rows.n, list(self.places)  # so that what is asked later holds no rows

        def standing() -> Standing:
            view = geometry.seen_from(geometry.medoid)
            return Standing(
                weights=shares(weights[:n]),
                distances=torch.from_numpy(view.squared_distances_to(weights.numpy())[:n]),
                margins=torch.tensor(choice.margins, dtype=torch.float64)[places],
            )

        return Combination(
            vector=self._all.weighted_sum(added),
            standing=standing,
            reasons=lambda: [choice.reasons[place] for place in places],
        )

    def average(
        self, selection: Selection | Nearest, reduction: Callable[[Rows], BandMean]
    ) -> BandMean:
        """Average some of the values in every column of the points.

        Mixed points are formed in the rows' arithmetic dtype, about one of the
        rows, so that the mean of equal rows is that row; never whole.

        Args:
            selection: Which.
            reduction: Does it for plain rows; `kept` is of the points.

        Returns:
            The vector, and `kept` and `distances` of the rows.
        """
        if self.matrix is not None and self._picked is None and set(self.landmarks) <= {ORIGIN}:
            of_rows = self.matrix[:, : self.rows.n]
            made = mixed_mean(self.rows, of_rows, selection, _middle_row(self.rows))
            if made is not None:
                return replace(made, kept=made.kept @ of_rows)
        return self.reduce(reduction)

    def reduce(self, reduction: Callable[[Rows], BandMean]) -> BandMean:
        """Apply a coordinate-wise reduction to the points, block by block where they are mixed.

        Args:
            reduction: Treats every column alone; `kept` is of the points.

        Returns:
            The vector, and `kept` and `distances` of the rows.
        """
        if self.matrix is None:
            return reduction(self.rows)
        if self._picked is not None:
            return self._reduce_picked(self._picked, reduction)
        vector = self.rows.tensors[0].new_empty(self.rows.d, dtype=self.rows.dtype)
        kept = torch.zeros(self.n, dtype=torch.float64, device=vector.device)
        distances = kept.new_zeros(self.rows.n)
        matrix, middle = self.matrix.to(vector), _middle_row(self.rows)
        for columns in self.rows.spans(self.rows.d):
            block = self._all.block(columns)
            measured = max(0, min(self.rows.measured - columns.start, block.shape[1]))
            mixed = torch.addmm(block[middle], matrix, block - block[middle])
            made = reduction(Rows(tuple(mixed), measured))
            vector[columns] = made.vector
            kept += made.kept
            gaps = block[: self.rows.n, :measured] - made.vector[:measured]
            distances += _squared_lengths(gaps)
        kept, distances = self.rows.total(kept), self.rows.total(distances)
        return BandMean(vector, kept @ self.matrix[:, : self.rows.n].to(kept), distances)

    def _reduce_picked(
        self, positions: Sequence[int], reduction: Callable[[Rows], BandMean]
    ) -> BandMean:
        """Reduce points that are rows themselves, each at most once."""
        rows, picked = self.rows, torch.tensor(positions)
        made = reduction(rows.with_tensors(tuple(rows.tensors[i] for i in positions)))
        kept, distances = made.kept.new_zeros(rows.n), made.distances.new_zeros(rows.n)
        kept[picked], distances[picked] = made.kept, made.distances
        others = sorted(set(range(rows.n)).difference(positions))
        if others:
            left_out = rows.with_tensors(tuple(rows.tensors[i] for i in others))
            distances[torch.tensor(others)] = distances_to(left_out, made.vector).to(distances)
        return BandMean(made.vector, kept, distances)

    def columns(self, positions: Tensor) -> Tensor:
        """Return these columns of the points, float64 [n, len(positions)] on the CPU."""
        block = self._all.columns(positions)
        return block[: self.n] if self.matrix is None else self.matrix @ block

    @cached_property
    def _picked(self) -> list[int] | None:
        """Which row each point is, if all are different rows; else None."""
        if self.matrix is None:
            return list(range(self.rows.n))
        matrix = self.matrix.numpy()
        if np.count_nonzero(matrix) != self.n:
            return None
        is_one = matrix[:, : self.rows.n] == 1
        found: list[int] = is_one.argmax(axis=1).tolist()
        return found if is_one.any(axis=1).all() and len(set(found)) == self.n else None

    @property
    def _all(self) -> Rows:
        """Rows and landmarks as rows."""
        if not self.landmarks:
            return self.rows
        return self.rows.with_tensors((*self.rows.tensors, *self.landmarks.values()))

    def _to_rows(self, weights: Tensor) -> Tensor:
        """Turn coefficients [k, n + landmarks] in the points into ones in rows and landmarks."""
        if self.matrix is None:
            return weights
        whole = weights[:, : self.n] @ self.matrix
        whole[:, self.rows.n :] += weights[:, self.n :]
        return whole


def _squared_lengths(gaps: Tensor) -> Tensor:
    """Return the squared length of each row, float64 [n].

    Summed in the rows' own dtype, which is many times faster than in float64,
    unless that overflows or comes to nothing.
    """
    squared: Tensor = torch.linalg.vecdot(gaps, gaps).to(torch.float64)
    is_on_cpu = gaps.device.type == "cpu"  # elsewhere the question alone would be a wait
    if not (is_on_cpu and bool(squared.isfinite().all() & (squared > 0).all())):
        squared = torch.linalg.vector_norm(gaps, dim=1, dtype=torch.float64).square()
    return squared


def _middle_row(rows: Rows) -> int:
    """Return the row of median length."""
    return middle_row([sum(parts) for parts in rows.squared_lengths()])


def shares(weights: Tensor) -> Tensor:
    """Return the weights [n] divided by their sum; zeros if they are all zero."""
    total = weights.sum()
    return weights / total if total > 0 else torch.zeros_like(weights)


def mean_of(chosen: Sequence[int], n: int) -> list[float]:
    """Return weights of n points that make the mean of the chosen ones."""
    weight = 1 / len(chosen)
    kept = frozenset(chosen)
    return [weight if i in kept else 0.0 for i in range(n)]
