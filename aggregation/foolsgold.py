"""FoolsGold: workers whose histories point the same way lose their say."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pliska.aggregation.aggregator import Rule
from pliska.aggregation.errors import ParameterError
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import ORIGIN, Choice, Combination, Points
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Memory, Setting

ALIKE = 1e-6
"""Histories whose cosine is this near to 1 are alike: products in float32 tell no more."""


@dataclass(frozen=True, kw_only=True)
class FoolsGold(Rule):
    """Weighted mean with weights that fall with the likeness of a worker's history to another's.

    With H_i the sum of worker i's rows so far and m_i its largest cosine with
    another H_j, at least 0: cosines of i with j are scaled by m_i / m_j where m_j > m_i (the
    pardon), a_i = 1 - the largest of them, a is divided by its maximum, and the
    weight is ln(a / (1 - a)) + 1/2, cut to [0, 1].

    The histories are the memory: one vector per worker, for the workers of this
    round only, so the memory is n d values however many rounds there are. It
    does not follow from the aggregates, so no log of these can rebuild it.
    It finds sybils that send alike; one liar alone goes unnoticed, and honest
    workers with like data are punished. Where everybody is alike the aggregate
    is zero, never the plain mean.

    Source: Fung, Yoon, Beschastnikh, "The limitations of federated learning in
    sybil settings", RAID 2020, Algorithm 1. Bound n >= f + 2: it bears sybils,
    not a given number of liars. Cost O(n^2 d), and n d for the histories.
    Deviations: a weighted mean, where the paper sums; all coordinates are
    equally important; histories within `ALIKE` of each other are the same. The
    report's margin is 2 * weight - 1 before sharing.
    """

    name: ClassVar[str] = "foolsgold"
    uses: ClassVar[frozenset[str]] = frozenset({"memory"})
    needs_origin: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pre.keeps_workers:
            raise ParameterError("foolsgold keeps a history per worker: no mixing before it")

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= f + 2"

    def rows_least(self, f: int) -> int:
        """Likeness takes two honest rows."""
        return f + 2

    def combine(self, points: Points, setting: Setting) -> Combination:
        """Add the rows to the histories, compare those, and weigh the rows."""
        rows = points.rows
        histories = _extended(setting.memory, setting.workers, rows)
        origin = torch.zeros_like(histories[0])
        geometry = Geometry.of(rows.with_tensors((*histories, origin)), (ORIGIN,))
        cosines = geometry.seen_from(geometry.landmarks[ORIGIN]).cosines
        say = says(torch.from_numpy(cosines[: rows.n, : rows.n]))
        total = float(say.sum())
        weights = say / total if total > 0 else say
        padding = [0.0] * len(points.landmarks)
        origin_weight = 1 - float(weights.sum())
        padding[list(points.landmarks).index(ORIGIN)] = origin_weight
        made = points.combine(
            Choice(
                weights=[*weights.tolist(), *padding],
                margins=(2 * say - 1).tolist(),
                reasons=[f"say of {value:.3g} by its history" for value in say.tolist()],
            )
        )
        return replace(made, memory=dict(zip(setting.workers, histories, strict=True)))


def says(cosines: Tensor) -> Tensor:
    """Return each worker's say, 0 to 1, from the cosines of the histories [n, n]."""
    others = cosines.clone().fill_diagonal_(0.0)
    most = others.max(dim=1).values
    pardon = torch.where(most[None, :] > most[:, None], most[:, None] / most[None, :], 1.0)
    pardoned = others * pardon
    distinct = (1 - pardoned.max(dim=1).values).clamp(min=0, max=1)
    distinct[distinct < ALIKE] = 0.0
    if distinct.max() <= 0:
        return torch.zeros_like(distinct)
    scaled = distinct / distinct.max()
    return (torch.logit(scaled) + 0.5).clamp(min=0, max=1)


def _extended(memory: Memory | None, workers: tuple[str, ...], rows: Rows) -> list[Tensor]:
    """Return each worker's history with its new row added, as new vectors."""
    known: Memory = memory or {}
    return [
        row.to(rows.dtype, copy=True).add_(known[worker])
        if worker in known
        else row.to(rows.dtype, copy=True)
        for worker, row in zip(workers, rows.tensors, strict=True)
    ]
