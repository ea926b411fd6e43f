import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pliska.coordinator.training.training_module import (
    build_module,
    layout_of,
    load_data,
    manifest_of,
    seeded,
    trainable,
)
from pliska.coordinator.wire.errors import JobFileError
from pliska.coordinator.wire.job import Job, parse_job

TEXT = """\
name = "tiny"
seed = {seed}
[model]
factory = "module_task:{model}"
[data]
factory = "module_task:{data}"
[rule]
name = "mean"
[optimizer]
name = "sgd"
[rounds]
count = 1
workers = 1
quorum = 1
"""
SOURCE = """
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

def linear(): return nn.Linear(4, 2)
def noisy():
    module = nn.Linear(4, 2)
    module.extra = nn.Parameter(torch.tensor([random.random(), np.random.rand()]))
    return module.float()
def not_a_module(): return [nn.Linear(1, 1)]
def empty(): return nn.ReLU()
def frozen(): return nn.Linear(4, 2).requires_grad_(False)
def double(): return nn.Linear(4, 2).double()
def lazy(): return nn.LazyLinear(2)
def not_finite():
    module = nn.Linear(4, 2)
    module.bias.data[1] = float("nan")
    return module
def batch_norm(): return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
def batch_norm_without_statistics():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False))
def tied():
    module = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    module["b"].weight = module["a"].weight
    return module

def pairs():
    train = TensorDataset(torch.randn(6, 4), torch.zeros(6))
    return train, TensorDataset(torch.zeros(2, 4), torch.zeros(2))
def one(): return pairs()[0]
def no_examples(): return pairs()[0], TensorDataset(torch.zeros(0, 4), torch.zeros(0))
def no_targets(): return pairs()[0], torch.zeros(3, 4)
class Endless(IterableDataset):
    def __iter__(self): yield 1
class Broken(TensorDataset):
    def __getitem__(self, index): raise KeyError("no such file")
def broken(): return Broken(torch.zeros(3, 4)), pairs()[1]
def endless(): return Endless(), pairs()[1]
"""


@pytest.fixture
def job_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    (tmp_path / "module_task.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "module_task", raising=False)

    def make(model: str = "linear", data: str = "pairs", seed: int = 7) -> Job:
        return parse_job(TEXT.format(model=model, data=data, seed=seed), "tiny.toml")

    return make


def draws() -> tuple[float, float, float]:
    """Draw from every global generator."""
    return torch.rand(1).item(), random.random(), float(np.random.rand())  # noqa: NPY002


def test_one_seed_makes_one_module_whoever_drew_before(job_of: Callable[..., Job]) -> None:
    first = build_module(job_of("noisy"))
    draws()
    second = build_module(job_of("noisy"))
    other = build_module(job_of("noisy", seed=8))

    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    assert not torch.equal(first.weight, other.weight)  # type: ignore[arg-type]


def test_building_leaves_the_global_generators_alone(job_of: Callable[..., Job]) -> None:
    with seeded(1):
        undisturbed = draws()
    with seeded(1):
        build_module(job_of("noisy"))
        load_data(job_of())
        assert draws() == undisturbed


def test_generators_are_put_back_after_an_error() -> None:
    def fail() -> None:
        draws()
        raise ZeroDivisionError

    with seeded(1):
        undisturbed = draws()
    with seeded(1):
        with pytest.raises(ZeroDivisionError), seeded(3):
            fail()
        assert draws() == undisturbed


@pytest.mark.parametrize(
    ("model", "problem", "advice"),
    [
        ("not_a_module", "returned list, not a torch.nn.Module", "return the module"),
        ("empty", "has no parameters to train", "trainable parameters"),
        ("frozen", "has no parameters to train", "trainable parameters"),
        ("double", "has 'weight' as torch.float64 on cpu", "module.cpu().float()"),
        ("lazy", "does not know the shape of 'weight' yet", "give the layer its sizes"),
        ("not_finite", "has NaN or infinity in 'bias'", "finite numbers"),
        (
            "batch_norm",
            "keeps running statistics in '1.running_mean'",
            "use GroupNorm or LayerNorm",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_module_that_cannot_be_trained_says_why_and_what_instead(
    job_of: Callable[..., Job], model: str, problem: str, advice: str
) -> None:
    with pytest.raises(JobFileError) as caught:
        build_module(job_of(model))

    assert caught.value.line == 4
    assert problem in caught.value.message
    assert advice in caught.value.advice


def test_batch_norm_without_running_statistics_is_taken(job_of: Callable[..., Job]) -> None:
    assert isinstance(build_module(job_of("batch_norm_without_statistics")), nn.Module)


def test_the_manifest_lists_the_layout_in_order(job_of: Callable[..., Job]) -> None:
    layout = layout_of(build_module(job_of()))
    manifest = manifest_of(layout)

    assert [(entry.name, entry.shape) for entry in manifest.entries] == [
        ("bias", (2,)),
        ("weight", (2, 4)),
    ]
    assert manifest.dimension == layout.d == 10
    assert [entry.offset for entry in manifest.entries] == [0, 8]


def test_tied_parameters_are_trained_once(job_of: Callable[..., Job]) -> None:
    module = build_module(job_of("tied"))

    assert list(trainable(module)) == ["a.weight", "a.bias", "b.bias"]
    assert layout_of(module).d == 9 + 3 + 3


def test_data_is_the_same_for_one_seed(job_of: Callable[..., Job]) -> None:
    first, _ = load_data(job_of())
    second, test = load_data(job_of())

    assert torch.equal(first[0][0], second[0][0])
    assert len(test) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("one", "returned TensorDataset, not two datasets"),
        ("no_examples", "the test set of data.factory is empty"),
        ("no_targets", "the test set of data.factory has items of Tensor, not pairs"),
        ("broken", "the training set of data.factory raised KeyError: 'no such file' ("),
        ("endless", "the training set of data.factory is Endless, which has no length"),
    ],
)
def test_data_that_cannot_be_used_says_why(
    job_of: Callable[..., Job], data: str, problem: str
) -> None:
    with pytest.raises(JobFileError) as caught:
        load_data(job_of(data=data))

    assert problem in caught.value.message
    assert caught.value.line == 6
