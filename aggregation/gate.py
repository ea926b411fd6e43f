"""The gate before every rule: which rows may take part at all.

One NaN poisons every sum and makes sorting meaningless, so it must never reach
a rule. A bad row costs its sender a vote and spends one of the f faults that
the rule can bear; it never stops the round. What the gate cannot see (a lie in
the right shape) is the rule's business. `Rule.aggregate` calls this.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pliska.aggregation.engine.statistics import squared_length
from pliska.aggregation.errors import ParameterError
from pliska.aggregation.rows import Rows

NORM_MAX = 1e150
"""No row may be longer: squared distances of longer ones overflow float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a row must satisfy, beside having the shape and dtype of the others.

    Attributes:
        norm_max: Largest Euclidean norm of the measured part of a row; a
            longer row is refused, not shortened.
    """

    norm_max: float = NORM_MAX

    def __post_init__(self) -> None:
        if not 0 < self.norm_max <= NORM_MAX:
            raise ParameterError(f"norm_max must be in (0, {NORM_MAX:g}], not {self.norm_max!r}")

    def refusals(self, rows: Rows) -> dict[int, str]:
        """Return the reason by position of every row that may not take part.

        Args:
            rows: Candidates, one shape and dtype already.
        """
        if not rows.tensors:
            return {}
        lengths = rows.squared_lengths()
        reasons = {i: self._objection(row, *lengths[i]) for i, row in enumerate(rows.tensors)}
        return {i: reason for i, reason in reasons.items() if reason is not None}

    def _objection(self, row: Tensor, measured: float, carried: float) -> str | None:
        if not (measured < NORM_MAX**2 and carried < NORM_MAX**2):
            return _overflow_reason(row)
        norm = math.sqrt(measured)
        if norm > self.norm_max:
            return f"norm {norm:.3g} is above the limit of {self.norm_max:.3g}"
        return None


def squared_norm(row: Tensor) -> float:
    """Return the sum of squares in float64; not finite if any value of `row` [d] is not."""
    return squared_length(row, slice(0, len(row)))


def _overflow_reason(row: Tensor) -> str:
    bad = (~torch.isfinite(row)).nonzero()
    if not len(bad):
        return f"its norm is above {NORM_MAX:g}, which float64 distances cannot hold"
    column = int(bad[0])
    return f"{row[column]:g} at column {column}; {len(bad)} of its values are not finite"
