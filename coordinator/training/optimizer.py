"""Torch's optimizers by the name and parameters that a job file gives them.

Checks each value before torch sees it, and moves the optimizer's state out and
back in exactly. It decides no step: that is `model`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch

from pliska.coordinator.errors import ModelStateError, OptimizerError


@dataclass(frozen=True, slots=True)
class _Number:
    """A finite number of at least 0."""

    description = "a number of at least 0"

    def accept(self, value: object) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if math.isfinite(value) and value >= 0 else None


@dataclass(frozen=True, slots=True)
class _Claim:
    description = "true or false"

    def accept(self, value: object) -> bool | None:
        return value if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class _Betas:
    description = "two numbers from 0 to below 1, such as [0.9, 0.999]"

    def accept(self, value: object) -> tuple[float, float] | None:
        if not isinstance(value, list | tuple) or len(value) != 2:
            return None
        first, second = (_Number().accept(each) for each in value)
        if first is None or second is None or first >= 1 or second >= 1:
            return None
        return first, second


@dataclass(frozen=True, slots=True)
class _Kind:
    make: type[torch.optim.Optimizer]
    parameters: Mapping[str, _Number | _Claim | _Betas]
    state: frozenset[str]
    """Names of the tensors it may keep for a parameter; all but `step` have its shape."""


_ADAM_PARAMETERS: Mapping[str, _Number | _Claim | _Betas] = {
    "lr": _Number(),
    "betas": _Betas(),
    "eps": _Number(),
    "weight_decay": _Number(),
    "amsgrad": _Claim(),
}
_ADAM_STATE = frozenset({"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
_KINDS = {
    "sgd": _Kind(
        torch.optim.SGD,
        {
            "lr": _Number(),
            "momentum": _Number(),
            "dampening": _Number(),
            "weight_decay": _Number(),
            "nesterov": _Claim(),
        },
        frozenset({"momentum_buffer"}),
    ),
    "adam": _Kind(torch.optim.Adam, _ADAM_PARAMETERS, _ADAM_STATE),
    "adamw": _Kind(torch.optim.AdamW, _ADAM_PARAMETERS, _ADAM_STATE),
}


def optimizer_parameters(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters of the optimizer `name` and return them in torch's types.

    Raises:
        OptimizerError: There is no such optimizer or parameter, or a value is
            out of range. Its `parameter` is the name at fault, or None.
    """
    if name not in _KINDS:
        raise OptimizerError(f"there is no optimizer {name!r}", _suggestion(name, _KINDS), None)
    known = _KINDS[name].parameters
    checked = {}
    for parameter, value in parameters.items():
        if parameter not in known:
            advice = _suggestion(parameter, known)
            raise OptimizerError(f"{name} has no parameter {parameter!r}", advice, parameter)
        accepted = known[parameter].accept(value)
        if accepted is None:
            advice = f"write {known[parameter].description}"
            raise OptimizerError(f"{name}'s {parameter} is {value!r}", advice, parameter)
        checked[parameter] = accepted
    if checked.get("nesterov") and (not checked.get("momentum") or checked.get("dampening")):
        raise OptimizerError(
            "nesterov is true without momentum, or with dampening",
            "write momentum above 0 and leave dampening out, or nesterov = false",
            "nesterov",
        )
    return checked


class NamedOptimizer:
    """A torch optimizer over named parameters, whose state can be taken out and put back."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], parameters: Mapping[str, torch.nn.Parameter]
    ) -> None:
        """Make the optimizer.

        Args:
            name: A name that a job file may give.
            settings: The optimizer's parameters, as in a job file.
            parameters: What it steps, by name.

        Raises:
            OptimizerError: As `optimizer_parameters`.
        """
        checked = optimizer_parameters(name, settings)
        self._name, self._kind, self._parameters = name, _KINDS[name], parameters
        self._torch = self._kind.make(parameters.values(), **checked)

    def step(self) -> None:
        """Step along the parameters' gradients."""
        self._torch.step()

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return float(self._torch.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._torch.param_groups[0]["lr"] = value

    def settings(self) -> dict[str, Any]:
        """Return name and parameters, defaults included, as JSON has them."""
        group = self._torch.param_groups[0]
        # Through `accept`, because torch's own defaults mix 0 with 0.0.
        values = {name: kind.accept(group[name]) for name, kind in self._kind.parameters.items()}
        return {"name": self._name, **values}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the state by `PARAMETER/WHAT`, such as `fc.weight/exp_avg`; views, not copies."""
        return {
            f"{name}/{what}": value
            for name, parameter in self._parameters.items()
            for what, value in self._torch.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor)
        }

    def restore(self, settings: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        """Put back what `settings` and `tensors` returned; the tensors are copied.

        Raises:
            ModelStateError: It is the state of another optimizer or of other
                parameters; nothing was changed.
        """
        if settings.get("name") != self._name:
            raise ModelStateError(
                f"the state is of the optimizer {settings.get('name')!r}, not {self._name!r}"
            )
        try:
            checked = optimizer_parameters(
                self._name, {name: value for name, value in settings.items() if name != "name"}
            )
        except OptimizerError as error:
            raise ModelStateError(f"the optimizer's state is not usable: {error}") from error
        state: dict[torch.Tensor, dict[str, torch.Tensor]] = {}
        for key, tensor in tensors.items():
            name, _, what = key.rpartition("/")
            self._require_place(name, what, tensor)
            state.setdefault(self._parameters[name], {})[what] = tensor.clone()
        self._torch.param_groups[0].update(checked)
        self._torch.state.clear()
        self._torch.state.update(state)

    def _require_place(self, name: str, what: str, tensor: torch.Tensor) -> None:
        if name not in self._parameters or what not in self._kind.state:
            raise ModelStateError(f"the optimizer has no place for {name}/{what}")
        shape = torch.Size() if what == "step" else self._parameters[name].shape
        if tensor.shape != shape or tensor.dtype != torch.float32:
            raise ModelStateError(
                f"{name}/{what} is {tensor.dtype} {tuple(tensor.shape)}, "
                f"expected float32 {tuple(shape)}"
            )


def _suggestion(name: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"write {close[0]!r}" if close else f"write one of {', '.join(known)}"
