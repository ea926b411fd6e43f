from typing import Any

import pytest
import torch
from torch import nn

from pliska.coordinator.errors import ModelStateError, OptimizerError
from pliska.coordinator.training.optimizer import NamedOptimizer, optimizer_parameters


def parameters() -> dict[str, nn.Parameter]:
    made = {"a": nn.Parameter(torch.ones(3)), "b": nn.Parameter(torch.ones(2, 2))}
    for parameter in made.values():
        parameter.grad = torch.full_like(parameter, 0.5)
    return made


@pytest.mark.parametrize(
    ("name", "given", "message", "advice"),
    [
        ("sgdm", {}, "no optimizer 'sgdm'", "write 'sgd'"),
        ("lion", {}, "no optimizer 'lion'", "write one of sgd, adam, adamw"),
        ("sgd", {"lrr": 1.0}, "sgd has no parameter 'lrr'", "write 'lr'"),
        ("sgd", {"betas": [0.9, 0.9]}, "sgd has no parameter 'betas'", "write"),
        ("sgd", {"lr": -1}, "sgd's lr is -1", "write a number of at least 0"),
        ("sgd", {"lr": "fast"}, "sgd's lr is 'fast'", "write a number of at least 0"),
        ("sgd", {"lr": True}, "sgd's lr is True", "write a number of at least 0"),
        ("sgd", {"lr": float("inf")}, "sgd's lr is inf", "write a number of at least 0"),
        ("sgd", {"momentum": -0.1}, "sgd's momentum is -0.1", "write a number of at least 0"),
        ("sgd", {"nesterov": 1}, "sgd's nesterov is 1", "write true or false"),
        ("sgd", {"nesterov": True}, "nesterov is true without momentum", "write momentum above 0"),
        ("adam", {"betas": [0.9, 1.0]}, "adam's betas is", "write two numbers from 0 to below 1"),
        ("adam", {"betas": [0.9]}, "adam's betas is [0.9]", "write two numbers"),
        ("adamw", {"momentum": 0.9}, "adamw has no parameter 'momentum'", "write"),
    ],
)
def test_a_wrong_parameter_says_what_to_write(
    name: str, given: dict[str, Any], message: str, advice: str
) -> None:
    with pytest.raises(OptimizerError) as caught:
        optimizer_parameters(name, given)

    assert message in caught.value.message
    assert caught.value.advice.startswith(advice)


def test_whole_numbers_and_lists_become_torchs_types() -> None:
    assert optimizer_parameters("adam", {"lr": 1, "betas": [0, 0.5]}) == {
        "lr": 1.0,
        "betas": (0.0, 0.5),
    }


@pytest.mark.parametrize(
    ("name", "given", "torchs"),
    [
        ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True}, torch.optim.SGD),
        ("adam", {"lr": 0.1, "betas": (0.8, 0.9), "amsgrad": True}, torch.optim.Adam),
        ("adamw", {"lr": 0.1, "weight_decay": 0.3}, torch.optim.AdamW),
    ],
)
def test_the_steps_are_torchs_own(
    name: str, given: dict[str, Any], torchs: type[torch.optim.Optimizer]
) -> None:
    ours, theirs = parameters(), parameters()
    optimizer = NamedOptimizer(name, given, ours)
    reference = torchs(theirs.values(), **given)
    for _ in range(3):
        optimizer.step()
        reference.step()

    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_settings_hold_defaults_and_the_present_learning_rate() -> None:
    optimizer = NamedOptimizer("sgd", {"momentum": 0.9}, parameters())
    optimizer.learning_rate = 0.25

    assert optimizer.settings() == {
        "name": "sgd",
        "lr": 0.25,
        "momentum": 0.9,
        "dampening": 0.0,
        "weight_decay": 0.0,
        "nesterov": False,
    }


def test_state_goes_from_one_optimizer_to_another() -> None:
    first, second = parameters(), parameters()
    source = NamedOptimizer("adam", {"lr": 0.1}, first)
    source.step()
    target = NamedOptimizer("adam", {"lr": 0.5}, second)
    target.restore(source.settings(), source.tensors())

    assert target.settings() == source.settings()
    assert target.tensors().keys() == {
        f"{name}/{what}" for name in "ab" for what in ("step", "exp_avg", "exp_avg_sq")
    }
    source.step()
    assert torch.equal(target.tensors()["a/step"], torch.tensor(1.0)), "restored by copy"


@pytest.mark.parametrize(
    ("settings", "tensors", "reason"),
    [
        ({"name": "sgd"}, {}, "of the optimizer 'sgd', not 'adam'"),
        ({"name": "adam", "lr": -1}, {}, "not usable: adam's lr is -1"),
        ({"name": "adam"}, {"c/exp_avg": torch.zeros(3)}, "no place for c/exp_avg"),
        ({"name": "adam"}, {"a/other": torch.zeros(3)}, "no place for a/other"),
        ({"name": "adam"}, {"a/exp_avg": torch.zeros(4)}, r"a/exp_avg is torch.float32 \(4,\)"),
        ({"name": "adam"}, {"a/step": torch.zeros(3)}, r"a/step is torch.float32 \(3,\)"),
        ({"name": "adam"}, {"a/step": torch.tensor(1)}, "a/step is torch.int64"),
    ],
)
def test_a_foreign_state_is_refused_and_changes_nothing(
    settings: dict[str, Any], tensors: dict[str, torch.Tensor], reason: str
) -> None:
    optimizer = NamedOptimizer("adam", {"lr": 0.1}, parameters())
    optimizer.step()
    before = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}

    with pytest.raises(ModelStateError, match=reason):
        optimizer.restore(settings, tensors)

    assert optimizer.settings()["lr"] == 0.1
    assert all(torch.equal(before[name], value) for name, value in optimizer.tensors().items())
