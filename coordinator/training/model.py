"""The model being trained: the user's module, one torch optimizer, and their exact state.

The coordinator steps it along aggregates; gradients are made by workers. What
the rule remembers of the aggregates is part of the state, since the next step
depends on it. It knows no rounds, no files and no network, and never runs the
module forward. Not safe for use from two threads at once.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from pliska.aggregation import Memory, Rule, rule_named
from pliska.aggregation.layout import StateLayout
from pliska.coordinator.errors import ModelStateError
from pliska.coordinator.training.optimizer import NamedOptimizer
from pliska.coordinator.training.training_module import (
    build_module,
    layout_of,
    manifest_of,
    trainable,
)
from pliska.coordinator.training.training_state import TrainingState, vector_digest
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.manifest import Manifest

_PARAMETER, _CONSTANT, _OPTIMIZER, _MEMORY = "parameters/", "constants/", "optimizer/", "memory/"


class TrainingModel:
    """Parameters and optimizer of one job.

    All parameters and their gradients are views of two flat float32 vectors,
    so a step copies the aggregate once and nothing else.

    Attributes:
        layout: Where each trainable parameter lies in the flat vector.
        step: Optimizer steps taken since the job's first parameters.
        memory: What the rule is given in the next round (see `aggregation.Rule.memory_after`).
    """

    def __init__(
        self, module: nn.Module, optimizer: str, settings: Mapping[str, Any], rule: Rule
    ) -> None:
        """Take over a module that `build_module` has checked.

        Args:
            module: Its parameters are moved into one flat vector, values unchanged.
            optimizer: Name of a torch optimizer, as a job file has it.
            settings: Its parameters.
            rule: Makes the aggregates; only its memory is kept here.

        Raises:
            OptimizerError: No such optimizer, or not with these parameters.
        """
        self.layout: StateLayout = layout_of(module)
        self.step = 0
        self.memory: Memory | None = None
        self._rule = rule
        self._module = module
        self._trainable = trainable(module)
        self._flat = self.layout.flatten(self._trainable)
        self._gradient = torch.zeros_like(self._flat)
        gradients = self.layout.unflatten(self._gradient)
        for name, values in self.layout.unflatten(self._flat).items():
            self._trainable[name].data = values
            self._trainable[name].grad = gradients[name]
        self._optimizer = NamedOptimizer(optimizer, settings, self._trainable)
        self._constants = _constants(module, self._trainable)

    @classmethod
    def build(cls, job: Job) -> "TrainingModel":
        """Make the job's model as it is before the first round.

        Raises:
            JobFileError: The model's factory is missing or made something unfit.
            OptimizerError: The optimizer's parameters are wrong (`job_check`
                says so with the line).
            RuleUsageError: The rule's are; so does `job_check`.
        """
        rule = rule_named(job.rule.name, **job.rule.parameters)
        return cls(build_module(job), job.optimizer.name, job.optimizer.parameters, rule)

    @property
    def dimension(self) -> int:
        """Length d of the flat vector."""
        return self.layout.d

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._optimizer.learning_rate = value

    def manifest(self) -> Manifest:
        """Return the manifest that every gradient of this job must have."""
        return manifest_of(self.layout)

    def parameters(self) -> torch.Tensor:
        """Return a copy of the trainable parameters, float32 [d], in the layout's order."""
        return self._flat.clone()

    def named_parameters(self) -> dict[str, torch.Tensor]:
        """Return a copy of the module's state dict: what a registry or a server loads."""
        return {
            name: value.detach().clone(memory_format=torch.contiguous_format)
            for name, value in self._module.state_dict().items()
            if isinstance(value, torch.Tensor)
        }

    def apply(self, aggregate: torch.Tensor) -> None:
        """Take one optimizer step along the aggregate, and remember what the rule shall.

        Args:
            aggregate: float32 [d], finite; the gradient of the loss. Not changed.

        Raises:
            ModelStateError: It has another shape or dtype, or is not finite;
                no step was taken.
        """
        if aggregate.shape != self._flat.shape or aggregate.dtype != torch.float32:
            raise ModelStateError(
                f"the aggregate is {aggregate.dtype} {tuple(aggregate.shape)}, "
                f"expected float32 ({self.dimension},)"
            )
        if not bool(aggregate.isfinite().all()):
            raise ModelStateError("the aggregate holds NaN or infinity")
        self._gradient.copy_(aggregate)
        self._optimizer.step()
        self.step += 1
        self.memory = self._rule.memory_after(aggregate)

    def parameters_digest(self) -> bytes:
        """Return the root of the hash tree over the parameters' bytes, 32 bytes.

        The bytes are those of `parameters()`, little-endian: whoever receives
        them chunk by chunk can check each chunk against this root.
        """
        return vector_digest(self._flat)

    def state_digest(self) -> bytes:
        """Return the digest of `export_state()`, 32 bytes."""
        return self.export_state().digest()

    def export_state(self) -> TrainingState:
        """Return everything the next step depends on.

        The tensors are views of the live model: copy them before the next step
        (`CheckpointWriter.save` does).
        """
        tensors = {f"{_PARAMETER}{name}": value.detach() for name, value in self._trainable.items()}
        tensors |= {f"{_CONSTANT}{name}": value for name, value in self._constants.items()}
        tensors |= {f"{_OPTIMIZER}{name}": each for name, each in self._optimizer.tensors().items()}
        tensors |= {f"{_MEMORY}{name}": vector for name, vector in (self.memory or {}).items()}
        return TrainingState(tensors, {"step": self.step, "optimizer": self._optimizer.settings()})

    def restore_state(self, state: TrainingState) -> None:
        """Put the model back to an exported state, bit for bit. The tensors are copied.

        Raises:
            ModelStateError: It is the state of another model, optimizer or rule.
                The model may be partly restored: build a new one.
        """
        step, optimizer = state.settings.get("step"), state.settings.get("optimizer")
        if not isinstance(step, int) or not isinstance(optimizer, dict):
            raise ModelStateError("the state has no step, or no optimizer settings")
        parts = {
            prefix: {
                name.removeprefix(prefix): tensor
                for name, tensor in state.tensors.items()
                if name.startswith(prefix)
            }
            for prefix in (_PARAMETER, _CONSTANT, _OPTIMIZER, _MEMORY)
        }
        if parts[_MEMORY] and not self._rule.rebuilds_memory:
            raise ModelStateError(f"the state is of another rule: {self._rule.name} has no memory")
        _copy_into(self._trainable, parts[_PARAMETER])
        _copy_into(self._constants, parts[_CONSTANT])
        self._optimizer.restore(optimizer, parts[_OPTIMIZER])
        self.memory = {name: each.clone() for name, each in parts[_MEMORY].items()} or None
        self.step = step


def _constants(module: nn.Module, parameters: dict[str, nn.Parameter]) -> dict[str, torch.Tensor]:
    """Return what the module's state dict holds and training never changes; tied names left out."""
    trained = {parameter.data_ptr() for parameter in parameters.values() if parameter.numel()}
    return {
        name: value.detach()
        for name, value in module.state_dict().items()
        if isinstance(value, torch.Tensor)
        and name not in parameters
        and value.data_ptr() not in trained
    }


def _copy_into(targets: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> None:
    if targets.keys() != tensors.keys():
        different = sorted(targets.keys() ^ tensors.keys())
        raise ModelStateError(
            f"the state is of another model: {different[0]!r} is on one side only"
        )
    with torch.no_grad():
        for name, target in targets.items():
            tensor = tensors[name]
            if tensor.shape != target.shape or tensor.dtype != target.dtype:
                raise ModelStateError(
                    f"{name} is {tensor.dtype} {tuple(tensor.shape)}, "
                    f"expected {target.dtype} {tuple(target.shape)}"
                )
            target.copy_(tensor)
