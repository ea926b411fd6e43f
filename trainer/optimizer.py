"""`RobustOptimizer`: a robust rule in a training loop of one's own, in two lines.

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = RobustOptimizer(optimizer, MultiKrum(f=2))   # the added line

The loop calls `loss.backward()` once for each source of data (a shard, a
client, a sensor) and then `optimizer.step()`. Torch would add these gradients
up; here each backward pass is one row, and the step follows the rule's
aggregate of the rows. Rules that draw lots draw others in each step, and rules
that remember are given what they remembered. It does not talk to a coordinator:
that is `Worker`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pliska.aggregation import Aggregation, Memory, Rule
from pliska.trainer.errors import OptimizerUsageError


class RobustOptimizer(torch.optim.Optimizer):
    """Wraps a torch optimizer; learning rate schedulers and state dicts work on the wrapper.

    Use one backward pass for each row. A parameter that took no part in a pass
    counts as zero in that row. Gradients are not kept in `parameter.grad`
    between passes: inspect `last` after the step instead.
    Reentrant activation checkpointing makes several passes of one; use torch's
    other kind (`use_reentrant=False`).

    Attributes:
        inner: The wrapped optimizer.
        rule: How the rows become one gradient.
        last: What the rule said in the last step; None before the first.
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
        self._rows: dict[int, dict[torch.Tensor, torch.Tensor]] = {}
        self._steps = 0
        self._memory: Memory | None = None
        self._remembered: list[int] = []
        super().__init__(optimizer.param_groups, optimizer.defaults)
        # One list and one state for both, so that a scheduler moves the inner learning rate.
        self.param_groups = optimizer.param_groups
        self.state = optimizer.state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to train; also called for those that the inner optimizer has."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            is_trained = parameter.requires_grad
            parameter.requires_grad_(True)  # torch wants that; a frozen one may be thawed later
            parameter.register_post_accumulate_grad_hook(self._take)
            parameter.requires_grad_(is_trained)

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
        rows, self._rows = self._rows, {}
        if not rows:
            raise OptimizerUsageError("step came before any backward pass: there is no row")
        parameters = self._parameters()
        positions = [
            position
            for position, each in enumerate(parameters)
            if any(each in row for row in rows.values())
        ]
        used = [parameters[position] for position in positions]
        # What was remembered of other parameters, before some were frozen or thawed, does not fit.
        memory = self._memory if positions == self._remembered else None
        flat = [_flatten(row, used) for row in rows.values()]
        self.last = self.rule(flat, seed=self._steps, memory=memory)
        self._steps += 1
        self._memory, self._remembered = self.last.memory, positions
        _spread(self.last.vector, used)
        self.inner.step()
        self.inner.zero_grad(set_to_none=True)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the rows that were collected since the last step."""
        self._rows = {}
        self.inner.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's state, and under `rule` how far the rule is."""
        rule = {"steps": self._steps, "memory": self._memory, "remembered": self._remembered}
        return self.inner.state_dict() | {"rule": rule}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the inner optimizer's state and the rule's; without one the rule begins anew."""
        inner = dict(state_dict)
        rule = inner.pop("rule", {})
        self.inner.load_state_dict(inner)
        self._steps = rule.get("steps", 0)
        self._memory = rule.get("memory")
        self._remembered = rule.get("remembered", [])
        self.param_groups = self.inner.param_groups
        self.state = self.inner.state

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _take(self, parameter: torch.Tensor) -> None:
        """Move the gradient of one parameter into the row of this backward pass."""
        # Torch has no public name for the pass that a hook runs in.
        this_pass = torch._C._current_graph_task_id()  # noqa: SLF001
        if parameter.grad is not None:
            self._rows.setdefault(this_pass, {})[parameter] = parameter.grad
            parameter.grad = None


def _flatten(
    row: Mapping[torch.Tensor, torch.Tensor], parameters: Sequence[torch.Tensor]
) -> torch.Tensor:
    return torch.cat(
        [
            row.get(parameter, torch.zeros_like(parameter)).detach().reshape(-1)
            for parameter in parameters
        ]
    )


def _spread(vector: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
    """Put the pieces of a vector where the inner optimizer looks for gradients."""
    pieces = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad = piece.reshape(parameter.shape).to(parameter.dtype)
