"""The user's module and data, built from the job's seed and fit for training by aggregates.

Coordinator and workers both call this, so that they hold the same parameters in
the same order. It makes no optimizer and takes no step: that is `model`.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.utils.data import Dataset

from pliska.aggregation.layout import RUNNING_STATISTICS, StateLayout
from pliska.coordinator.training.user_code import call_factory, described, mistake
from pliska.coordinator.wire.errors import RefusedError
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.manifest import Manifest

Example = tuple[torch.Tensor, torch.Tensor]
"""Input and target of one example."""


def build_module(job: Job) -> nn.Module:
    """Call the job's model factory with the job's seed and check what it made.

    The random generators of Python, NumPy and torch are seeded for the call and
    put back after it, so nobody else's numbers change.

    Returns:
        A module on the CPU with float32 parameters.

    Raises:
        JobFileError: The factory is missing, raised, or made something that
            cannot be trained here; it names the line and what to do instead.
    """
    with seeded(job.seed):
        module = call_factory(job, "model")
    if not isinstance(module, nn.Module):
        raise mistake(
            job,
            "model.factory",
            f"model.factory returned {type(module).__name__}, not a torch.nn.Module",
            "return the module from the function",
        )
    reason = _unfit(module)
    if reason is not None:
        problem, advice = reason
        raise mistake(job, "model.factory", f"the model {problem}", advice)
    try:
        manifest_of(layout_of(module))
    except RefusedError as error:
        raise mistake(
            job, "model.factory", f"the model is too large: {error}", "use less"
        ) from error
    return module


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that training changes, by name; tied ones once."""
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def layout_of(module: nn.Module) -> StateLayout:
    """Return where each trainable parameter lies in the flat vector."""
    return StateLayout.of(trainable(module), buffers=())


def manifest_of(layout: StateLayout) -> Manifest:
    """Return the layout as gradients announce it.

    Raises:
        RefusedError: It is over a limit of the wire.
    """
    return Manifest.of((entry.name, "float32", entry.shape) for entry in layout.entries)


def load_data(job: Job) -> tuple[Dataset[Example], Dataset[Example]]:
    """Call the job's data factory with the job's seed and check what it made.

    Returns:
        The training and the test set, neither of them empty; each item is a
        pair of input and target.

    Raises:
        JobFileError: The factory is missing, raised, or made something else.
    """
    with seeded(job.seed):
        made = call_factory(job, "data")
    if not (isinstance(made, tuple | list) and len(made) == 2):
        raise mistake(
            job,
            "data.factory",
            f"data.factory returned {type(made).__name__}, not two datasets",
            "return the training and the test set as a tuple of two",
        )
    for name, dataset in zip(("training", "test"), made, strict=True):
        problem = _unfit_data(dataset)
        if problem is not None:
            raise mistake(
                job,
                "data.factory",
                f"the {name} set of data.factory {problem}",
                "return datasets such as torch.utils.data.TensorDataset(inputs, targets)",
            )
    return made[0], made[1]


_GENERATORS = threading.RLock()
"""Held by whoever has seeded the global generators: there is one of each in a process."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and torch's CPU, and put them back after.

    One thread at a time: a second one waits.
    """
    with _GENERATORS, _seeded(seed):
        yield


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 - the user's code may draw from it
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


def _unfit(module: nn.Module) -> tuple[str, str] | None:
    """Say what keeps the module from being trained and what to do, or return None."""
    for name, parameter in module.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            return f"does not know the shape of {name!r} yet", "give the layer its sizes"
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            return (
                f"has {name!r} as {parameter.dtype} on {parameter.device}",
                "return it on the CPU in float32: module.cpu().float()",
            )
        if not bool(parameter.isfinite().all()):
            return f"has NaN or infinity in {name!r}", "initialise it with finite numbers"
    if not any(parameter.numel() for parameter in trainable(module).values()):
        return "has no parameters to train", "return a module with trainable parameters"
    for name, _ in module.named_buffers():
        if name.rpartition(".")[2] in RUNNING_STATISTICS:
            return (
                f"keeps running statistics in {name!r}, which no sum of gradients can update",
                "use GroupNorm or LayerNorm, or set track_running_stats=False",
            )
    return None


def _unfit_data(dataset: Any) -> str | None:
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        return f"is {type(dataset).__name__}, which has no length or cannot be indexed"
    if len(dataset) == 0:
        return "is empty"
    try:
        item = dataset[0]
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is their message
        return f"raised {described(error)} for its first item"
    if not (isinstance(item, tuple | list) and len(item) == 2):
        return f"has items of {type(item).__name__}, not pairs of input and target"
    return None
