"""Bulyan and Multi-Bulyan: choose rows one by one, then average near their median."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pliska.aggregation import distances
from pliska.aggregation.aggregator import Rule
from pliska.aggregation.coordinate_rule import reduced
from pliska.aggregation.engine.networks import Nearest
from pliska.aggregation.krum import krum_scores
from pliska.aggregation.near_median import near_median_mean
from pliska.aggregation.points import Combination, Mixture, Points
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class RecursiveRule(Rule):
    """A rule that takes Krum's winner among the remaining rows again and again.

    What is taken each time makes theta points; the aggregate is, per
    coordinate, the mean of the theta - 2f values nearest their median.
    """

    @property
    def bound(self) -> str:
        """That of the papers, for both rules."""
        return "n >= 4f + 3"

    def rows_least(self, f: int) -> int:
        """The smallest n that satisfies `bound`."""
        return 4 * f + 3

    @abstractmethod
    def selection(self, distances: Tensor, f: int) -> tuple[Tensor, list[int]]:
        """Choose.

        Args:
            distances: Squared distances, float64 [n, n].
            f: Faults still to bear.

        Returns:
            Coefficients of the theta points in the n given, float64 [theta, n],
            and the winners in order.
        """

    def read_ahead(self, rows: Rows, f: int) -> None:
        """Multiply the rows."""
        del f
        distances.read_ahead(rows)

    def combine(self, points: Points, setting: Setting) -> Combination:
        """Choose by distances, then average near the median."""
        geometry, f = points.geometry, setting.f
        coefficients, winners = self.selection(geometry.between_rows, f)
        matrix = torch.zeros(len(winners), len(geometry.distances), dtype=torch.float64)
        matrix[:, : geometry.n] = coefficients
        theta = len(winners)
        chosen = points.mixed(Mixture(matrix, [0] * geometry.n))
        nearest = Nearest(theta, theta - 2 * f)
        made = reduced(
            points, chosen.average(nearest, lambda rows: near_median_mean(rows, nearest.count))
        )
        turns = {row: turn for turn, row in enumerate(winners, start=1)}
        places = list(points.places)  # so that the reasons hold no rows

        def reasons() -> list[str]:
            return [
                f"Krum's choice {turns[place]} of {theta}; {kept}"
                if place in turns
                else f"not among Krum's {theta} choices"
                for place, kept in zip(places, made.reasons(), strict=True)
            ]

        return replace(made, reasons=reasons)


@dataclass(frozen=True, kw_only=True)
class Bulyan(RecursiveRule):
    """Bulyan of Krum: theta = n - 2f rows chosen by repeated Krum, then a mean near the median.

    Repeat theta times: take Krum's winner among the remaining rows and remove
    it; scores are formed anew each time. Then, per coordinate, the mean of the
    theta - 2f values nearest the median of the theta taken. Ties go to the
    earlier worker, in both steps.

    Source: El Mhamdi, Guerraoui, Rouault, "The hidden vulnerability of
    distributed learning in Byzantium", ICML 2018, Section 4. Bound
    n >= 4f + 3. Cost O(n^2 d) for the distances, O(n^3 log n) on numbers, and
    a mean near the median of theta rows. The paper leaves open what Krum does
    when fewer than f + 3 rows remain: here at least the nearest one counts.
    The report's margin is that of coordinate-wise rules.
    """

    name: ClassVar[str] = "bulyan"

    def selection(self, distances: Tensor, f: int) -> tuple[Tensor, list[int]]:
        """Take theta winners, each as itself."""
        n = len(distances)
        winners = [ranking[0] for ranking in _rankings(distances, f, n - 2 * f)]
        return torch.eye(n, dtype=torch.float64)[sorted(winners)], winners


@dataclass(frozen=True, kw_only=True)
class MultiBulyan(RecursiveRule):
    """Multi-Bulyan: as Bulyan, but each turn adds the mean of Multi-Krum's best instead of one row.

    theta = n - 2f - 2 turns. In each, with r rows remaining, the mean of the
    r - f - 2 rows of least Krum score is added and the winner removed. Then,
    per coordinate, the mean of the theta - 2f values nearest their median.

    Source: El Mhamdi, Guerraoui, Rouault, "Fast and robust distributed
    learning in high dimension", 2019, Section 4 (Algorithm 1), with the
    schedule of m of their program. Bound n >= 4f + 3. Cost as Bulyan's. The
    report's margin is that of coordinate-wise rules. No deviation.
    """

    name: ClassVar[str] = "multi-bulyan"

    def selection(self, distances: Tensor, f: int) -> tuple[Tensor, list[int]]:
        """Take theta winners, each as the mean of the best of its turn."""
        n = len(distances)
        rankings = _rankings(distances, f, n - 2 * f - 2)
        coefficients = torch.zeros(len(rankings), n, dtype=torch.float64)
        for turn, ranking in enumerate(rankings):
            best = ranking[: len(ranking) - f - 2]
            coefficients[turn, best] = 1 / len(best)
        return coefficients, [ranking[0] for ranking in rankings]


def _rankings(distances: Tensor, f: int, turns: int) -> list[list[int]]:
    """Rank the remaining rows by Krum score, once a turn; the winner leaves after each."""
    remaining = list(range(len(distances)))
    rankings = []
    for _ in range(turns):
        among = distances[remaining][:, remaining]
        scores = krum_scores(among, min(f, len(remaining) - 3), "blanchard")
        ranking = [row for _, row in sorted(zip(scores, remaining, strict=True))]
        rankings.append(ranking)
        remaining.remove(ranking[0])
    return rankings
