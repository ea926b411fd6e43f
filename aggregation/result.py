"""What a rule answers: the aggregate, and an account of every worker that waits to be asked for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from torch import Tensor

from pliska.aggregation.errors import ShapeError
from pliska.aggregation.faults import FaultCount
from pliska.aggregation.report import WorkerReport
from pliska.aggregation.setting import Memory

V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class Aggregation(Generic[V]):
    """The result of a rule.

    Attributes:
        vector: The aggregate, with the shape, dtype and kind of one row as it
            was handed in; float32 [d] for state dicts and buffers. Never an
            alias of the input.
        account: Makes the report.
        faults: How many faults were borne, and why so many.
        memory: What the rule wants to be given in the next round; None for
            most rules.
    """

    vector: V
    account: Callable[[], tuple[WorkerReport, ...]] = field(repr=False)
    faults: FaultCount
    memory: Memory | None = None
    _state: dict[str, Tensor] | None = None

    @cached_property
    def report(self) -> tuple[WorkerReport, ...]:
        """One entry per worker in canonical order, refused ones included.

        Made when it is first read: only then does anybody wait for a GPU to
        finish the aggregate. It needs no row any more.
        """
        return self.account()

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """The aggregate as a state dict; its float32 entries are views of `vector`.

        Raises:
            ShapeError: The rows were not state dicts.
        """
        if self._state is None:
            raise ShapeError("the rows were not state dicts; read `vector` instead")
        return self._state
