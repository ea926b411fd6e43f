"""One worker's gradients."""

import numpy as np
import torch
from training.toy_job import toy_job

from pliska.coordinator.training.computation import Computation
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.wire.job import parse_job


def test_worker_begins_with_the_coordinators_parameters_and_manifest() -> None:
    job = toy_job()
    computation, model = Computation(job), TrainingModel.build(job)
    assert torch.equal(torch.from_numpy(computation.parameters), model.parameters())
    assert computation.manifest() == model.manifest()
    assert computation.dimension == model.dimension
    assert computation.classes == 3


def test_gradient_is_the_derivative_of_the_batchs_loss_at_the_parameters() -> None:
    computation = Computation(toy_job())
    inputs, targets = computation._batch(3)
    direction = torch.randn(computation.dimension, generator=torch.Generator().manual_seed(1))
    slope = float(computation.gradient(3) @ direction)

    def loss(step: float) -> float:
        computation.parameters[:] += step * direction.numpy()
        with torch.no_grad():
            value = float(torch.nn.functional.cross_entropy(computation._module(inputs), targets))
        computation.parameters[:] -= step * direction.numpy()
        return value

    assert abs((loss(1e-2) - loss(-1e-2)) / 2e-2 - slope) < 1e-2 * max(1.0, abs(slope))


def test_same_lease_gives_the_same_bytes_everywhere() -> None:
    one, other = Computation(toy_job()), Computation(toy_job())
    assert torch.equal(one.gradient(5), other.gradient(5))
    assert not torch.equal(one.gradient(5), one.gradient(6))


def test_what_a_module_draws_follows_from_the_lease_and_leaves_no_trace() -> None:
    text = toy_job().text.replace("toy_job:model", "toy_job:forgetful_model")
    one, other = (Computation(parse_job(text, "toy.toml")) for _ in range(2))
    torch.manual_seed(1)
    first = one.gradient(5)
    after = torch.rand(1)
    torch.manual_seed(2)
    other.gradient(4)
    assert torch.equal(other.gradient(5), first)
    assert not torch.equal(other.gradient(6), first)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)


def test_downloading_into_the_parameters_changes_the_model_and_returned_gradients_stay() -> None:
    computation = Computation(toy_job())
    first = computation.gradient(1)
    kept = first.clone()
    computation.parameters[:] = np.zeros_like(computation.parameters)
    second = computation.gradient(1)
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)


def test_targets_can_be_changed_by_a_liar_only_in_its_own_batch() -> None:
    computation = Computation(toy_job())
    honest = computation.gradient(1)
    assert not torch.equal(computation.gradient(1, lambda targets: 2 - targets), honest)
    assert torch.equal(computation.gradient(1), honest)
