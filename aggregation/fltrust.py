"""FLTrust: rows count as far as they point the same way as a trusted gradient."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from pliska.aggregation.distance_rule import DistanceRule
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.points import ORIGIN, Choice
from pliska.aggregation.setting import Setting

TRUSTED = "trusted"
"""Name of the landmark at the reference."""


@dataclass(frozen=True, kw_only=True)
class FLTrust(DistanceRule):
    """Weighted mean of the rows brought to the length of g, with weights t_i = max(0, cos(x_i, g)).

    g is `reference`: the gradient on clean data that the caller keeps for it.
    Where nobody points its way the aggregate is zero, which leaves the model as
    it is; never the plain mean.

    Source: Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust federated learning
    via trust bootstrapping", NDSS 2021, Section IV (Algorithm 2). Bears any
    number of liars as long as g is right: bound n >= f + 1. Cost O(n^2 d) for
    the inner products, one weighted sum. No deviation. The report's weight is
    the share of trust, its margin the cosine.
    """

    name: ClassVar[str] = "fltrust"
    uses: ClassVar[frozenset[str]] = frozenset({"reference"})
    needs_origin: ClassVar[bool] = True

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= f + 1"

    def rows_least(self, f: int) -> int:
        """One honest row."""
        return f + 1

    def landmarks(self, setting: Setting) -> Mapping[str, Tensor]:
        """The reference."""
        return {} if setting.reference is None else {TRUSTED: setting.reference}

    def choose(self, geometry: Geometry, setting: Setting) -> Choice:
        """Trust by the cosine, and bring all rows to the reference's length."""
        del setting
        n = geometry.n
        origin, trusted = geometry.landmarks[ORIGIN], geometry.landmarks[TRUSTED]
        view = geometry.seen_from(origin)
        cosines = view.cosines[trusted, :n]
        lengths = view.radii[:n]
        trust = np.where(lengths > 0, cosines.clip(0.0, 1.0), 0.0)
        trusting = trust > 0
        weights = np.zeros(len(geometry.distances))
        if trusting.any():
            shares = trust[trusting] / trust.sum()
            weights[:n][trusting] = shares * view.radii[trusted] / lengths[trusting]
        weights[origin] = 1 - weights.sum()
        return Choice(
            weights=weights.tolist(),
            margins=cosines.tolist(),
            reasons=[f"cosine {cosine:.3f} with the reference" for cosine in cosines.tolist()],
        )
