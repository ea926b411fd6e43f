"""Accuracy of a committed version."""

import torch
from training.toy_job import toy_job

from pliska.coordinator.evaluator import Evaluator
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.training_module import (
    build_module,
    layout_of,
    load_data,
    trainable,
)


def test_accuracy_is_the_share_of_right_answers() -> None:
    job = toy_job()
    module = build_module(job)
    _, test = load_data(job)
    inputs = torch.stack([each for each, _ in test])
    targets = torch.stack([each for _, each in test])
    with torch.no_grad():
        expected = (module(inputs).argmax(1) == targets).float().mean().item()
    flat = layout_of(module).flatten(trainable(module))
    assert abs(Evaluator(job).accuracy(flat.numpy().tobytes()) - expected) < 1e-6


def test_each_version_is_measured_by_itself_and_nobody_elses_numbers_change() -> None:
    job = toy_job()
    evaluator, model = Evaluator(job), TrainingModel.build(job)
    first = model.parameters().numpy().tobytes()
    state = torch.random.get_rng_state()
    before = evaluator.accuracy(first)
    evaluator.accuracy(bytes(len(first)))
    assert evaluator.accuracy(first) == before
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.parameters().numpy().tobytes() == first
