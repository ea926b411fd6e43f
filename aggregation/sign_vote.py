"""Majority vote on the sign of each coordinate."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pliska.aggregation.column_blocks import reduce_columns
from pliska.aggregation.coordinate_rule import CoordinateRule
from pliska.aggregation.order_statistics import BandMean, majority_sign, read_signs_ahead
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting


@dataclass(frozen=True, kw_only=True)
class SignVote(CoordinateRule):
    """sign(sum over i of sign(x_i)) per coordinate: +1, -1, or 0 for a tie.

    The aggregate has no length of its own: the learning rate is the step. A
    zero votes for neither side.

    Source: Bernstein, Zhao, Azizzadenesheli, Anandkumar, "signSGD with majority
    vote is communication efficient and fault tolerant", ICLR 2019, Algorithm 1;
    a tie is 0. Breakdown point (n-1)/2: bound n >= 2f + 1 (Theorem 2). Cost
    O(n d), one read. No deviation. The report counts the coordinates in which
    a row votes with the majority.
    """

    name: ClassVar[str] = "sign-vote"

    @property
    def bound(self) -> str:
        """See the class."""
        return "n >= 2f + 1"

    def rows_least(self, f: int) -> int:
        """A majority must be honest."""
        return 2 * f + 1

    def read_ahead(self, rows: Rows, f: int) -> None:
        """Count votes."""
        del f
        read_signs_ahead(rows)

    def reduce(self, rows: Rows, setting: Setting) -> BandMean:
        """Count votes."""
        del setting
        made = majority_sign(rows)
        return reduce_columns(rows, _majority) if made is None else made


def _majority(block: Tensor) -> tuple[Tensor, Tensor]:
    votes = block.sign()
    decided = votes.sum(dim=0).sign()
    return decided, (votes == decided).sum(dim=1)
