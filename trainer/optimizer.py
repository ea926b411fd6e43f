"""`RobustOptimizer`: a robust rule in a training loop of one's own, in two lines.

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = RobustOptimizer(optimizer, MultiKrum(f=2))   # the added line

The loop calls `loss.backward()` once for each source of data (a shard, a
client, a sensor) and then `optimizer.step()`. Torch would add these gradients
up; here each backward pass is one row, and the step follows the rule's
aggregate of the rows. It does not talk to a coordinator: that is `Worker`.
"""

from collections.abc import Callable
from typing import Any

import torch

from pliska.aggregation import Aggregation, Rule
from pliska.trainer.errors import OptimizerUsageError


class RobustOptimizer(torch.optim.Optimizer):
    """Wraps a torch optimizer; learning rate schedulers and state dicts work on the wrapper.

    Use one backward pass for each row. A parameter that took no part in a pass
    counts as zero in that row. Gradients are not kept in `parameter.grad`
    between passes, so clip or inspect `last.vector` after the step instead.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, rule: Rule) -> None:
        """Take over the parameters of `optimizer`, which still makes the step.

        Args:
            optimizer: Any torch optimizer; do not call its `step` any more.
            rule: How the rows become one gradient, such as `MultiKrum(f=2)`.
        """
        self.inner = optimizer
        self.rule = rule
        self.last: Aggregation[torch.Tensor] | None = None
        self._rows: list[dict[torch.Tensor, torch.Tensor]] = []
        self._passes: dict[torch.Tensor, int] = {}
        super().__init__(optimizer.param_groups, optimizer.defaults)
        # One list and one state for both, so that a scheduler moves the inner learning rate.
        self.param_groups = optimizer.param_groups
        self.state = optimizer.state
        for parameter in self._parameters():
            parameter.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Aggregate the rows since the last step and let the inner optimizer follow the result.

        Raises:
            OptimizerUsageError: a closure was given, or no backward pass came before.
            AggregationError: the rows are too few for the rule, or too many are
                bad; the parameters are unchanged and the rows are dropped.
        """
        if closure is not None:
            raise OptimizerUsageError(
                "RobustOptimizer.step takes no closure: call backward once for each row, then step"
            )
        rows, self._rows = self._rows, []
        self._passes.clear()
        if not rows:
            raise OptimizerUsageError("step came before any backward pass: there is no row")
        self.last = self.rule([self._flatten(row) for row in rows])
        self._spread(self.last.vector)
        self.inner.step()
        self.inner.zero_grad(set_to_none=True)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the rows that were collected since the last step."""
        self._rows = []
        self._passes.clear()
        self.inner.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's state."""
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the inner optimizer's state."""
        self.inner.load_state_dict(state_dict)
        self.param_groups = self.inner.param_groups
        self.state = self.inner.state

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _take(self, parameter: torch.Tensor) -> None:
        """Move the gradient of one parameter into the row of this backward pass."""
        passes = self._passes.get(parameter, 0)
        self._passes[parameter] = passes + 1
        while len(self._rows) <= passes:
            self._rows.append({})
        if parameter.grad is not None:
            self._rows[passes][parameter] = parameter.grad
            parameter.grad = None

    def _flatten(self, row: dict[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return torch.cat(
            [
                row.get(parameter, torch.zeros_like(parameter)).detach().reshape(-1)
                for parameter in self._parameters()
            ]
        )

    def _spread(self, vector: torch.Tensor) -> None:
        parameters = self._parameters()
        pieces = torch.split(vector, [parameter.numel() for parameter in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.reshape(parameter.shape).to(parameter.dtype)
