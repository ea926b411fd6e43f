"""Multi-Krum: the mean of the rows that Krum likes best."""

from dataclasses import dataclass
from typing import ClassVar

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.krum import (
    Variant,
    keep_best,
    krum_bound,
    krum_rows_min,
    krum_scores,
    require_variant,
)
from pliska.aggregation.parameters import require_count
from pliska.aggregation.points import Choice
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class MultiKrum(DistanceRule):
    """Mean of the m rows with the least Krum scores.

    m = 1 is Krum. Scores, variants, ties and margin are as in `Krum`.

    Source: Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS 2017, Section 6
    (the m-Krum variant; the paper leaves m open). The default m is n-f-2, the
    largest for which Byzantine resilience was shown with this score (El
    Mhamdi, Guerraoui, Rouault, "Fast and robust distributed learning in high
    dimension", 2019, Section 4); for the kappa variant it is n-f as in ByzFL.
    Robustness bounds for Multi-Krum: Bareilles et al., arXiv 2602.03899, 2026.
    Bound n >= 2f + 3 and n >= m + f. Cost as Krum's plus one read of m rows.

    Attributes:
        m: Rows to average, 1 to n-f; None takes the variant's default for the
            n of the round.
        variant: See `Krum`.
    """

    name: ClassVar[str] = "multi-krum"

    m: int | None = None
    variant: Variant = "blanchard"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_variant(self.variant)
        if self.m is not None:
            require_count("m", self.m, 1)

    @property
    def bound(self) -> str:
        """Krum's bound, and m rows beside the f."""
        chosen = "" if self.m is None else f" and n >= m + f (m = {self.m})"
        return krum_bound(self.variant) + chosen

    def rows_least(self, f: int) -> int:
        """The smallest n that satisfies `bound`."""
        return max(krum_rows_min(f, self.variant), (self.m or 0) + f)

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Share the weight among the m best."""
        n, f = geometry.n, setting.f
        default = n - f - 2 if self.variant == "blanchard" else n - f
        scores = krum_scores(geometry.between_rows, f, self.variant)
        return keep_best(scores, default if self.m is None else self.m)
