"""What a rule is told beside the rows: by whoever calls it, never by the rows.

`Given` is what a caller may say, as keyword arguments of a rule; `Setting` is
the same for one call, checked and in row order, as rules see it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from torch import Tensor

from pliska.aggregation.mass import VotingMass

Memory = Mapping[str, Tensor]
"""What a rule carries from one round to the next: vectors [d] by name (the rule says which)."""


class Given(TypedDict, total=False):
    """Keyword arguments of a call of a rule.

    Attributes:
        seed: Of the round, for rules that draw lots; derive it from (run,
            round). The same seed gives the same bytes. 0 if left out.
        masses: Votes of each worker, from the caller's own registry.
        reference: A trusted vector with as many values as a row, such as a
            gradient on clean data; for rules that ask for one.
        memory: `Aggregation.memory` of the round before; None or left out in
            the first.
    """

    seed: int
    masses: VotingMass
    reference: Tensor
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class Setting:
    """The circumstances of one aggregation, as rules see them.

    Attributes:
        f: Faults still to bear: the rule's f less the refused rows.
        workers: Whose the rows are, in row order.
        seed: Of the round.
        masses: Votes of each row, capped, averaging 1; None counts each as one.
        reference: Trusted vector [d], if one was given.
        memory: What the round before left, flat vectors [d].
    """

    f: int
    workers: tuple[str, ...]
    seed: int = 0
    masses: tuple[float, ...] | None = None
    reference: Tensor | None = None
    memory: Memory | None = None
