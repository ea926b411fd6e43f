import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from pliska.aggregation import Mean
from pliska.coordinator.errors import ModelStateError
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.training_state import TrainingState
from pliska.coordinator.wire import hash_tree
from pliska.coordinator.wire.job import Job

OPTIMIZERS = [
    'name = "sgd", lr = 0.1',
    'name = "sgd", lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01',
    'name = "adam", lr = 0.01, amsgrad = true',
    'name = "adamw", lr = 0.01, betas = [0.8, 0.95]',
]

RESUME = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from conftest import aggregate_of, job_with
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.storage.storage import LocalStorage

for number, optimizer in enumerate(sys.argv[4:]):
    model = TrainingModel.build(job_with(optimizer))
    store = CheckpointStore(LocalStorage(Path(sys.argv[3], str(number))), "tiny")
    model.restore_state(store.read(store.places()[0])[1])
    for version in range(6, 11):
        model.apply(aggregate_of(version, model.dimension))
    print(model.step, model.parameters_digest().hex(), model.state_digest().hex())
"""


def aggregate(model: TrainingModel, seed: int = 0) -> torch.Tensor:
    return torch.randn(model.dimension, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def model(tiny_job: Callable[..., Job]) -> TrainingModel:
    return TrainingModel.build(tiny_job())


def test_a_step_is_the_torch_optimizers_step(tiny_job: Callable[..., Job]) -> None:
    model = TrainingModel.build(tiny_job('name = "adam", lr = 0.01'))
    reference = {
        name.removeprefix("parameters/"): nn.Parameter(tensor.clone())
        for name, tensor in model.export_state().tensors.items()
    }
    optimizer = torch.optim.Adam(reference.values(), lr=0.01)
    for seed in range(3):
        vector = aggregate(model, seed)
        for name, gradient in model.layout.unflatten(vector).items():
            reference[name].grad = gradient.clone()
        optimizer.step()
        model.apply(vector)

    for name, expected in reference.items():
        assert torch.equal(model.named_parameters()[name], expected)


def test_flat_and_named_parameters_are_the_same_numbers(model: TrainingModel) -> None:
    model.apply(aggregate(model))
    named = model.layout.unflatten(model.parameters())

    assert all(torch.equal(named[name], each) for name, each in model.named_parameters().items())
    assert model.parameters().shape == (model.dimension,) == (model.manifest().dimension,)


def test_parameters_are_a_copy(model: TrainingModel) -> None:
    before = model.parameters()
    kept = before.clone()
    model.apply(aggregate(model))

    assert torch.equal(before, kept)
    assert not torch.equal(model.parameters(), kept)


def test_the_aggregate_is_not_changed(model: TrainingModel) -> None:
    vector = aggregate(model)
    model.apply(vector)

    assert torch.equal(vector, aggregate(model))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda vector: vector[:-1], "expected float32"),
        (lambda vector: vector.double(), r"torch\.float64"),
        (lambda vector: vector.index_fill(0, torch.tensor([3]), float("nan")), "NaN or infinity"),
        (lambda vector: vector.index_fill(0, torch.tensor([3]), float("inf")), "NaN or infinity"),
    ],
)
def test_a_bad_aggregate_takes_no_step(
    model: TrainingModel, change: Callable[[torch.Tensor], torch.Tensor], reason: str
) -> None:
    before = model.state_digest()
    with pytest.raises(ModelStateError, match=reason):
        model.apply(change(aggregate(model)))

    assert model.state_digest() == before
    assert model.step == 0


def test_the_parameters_digest_is_the_hash_tree_root_of_their_bytes(model: TrainingModel) -> None:
    payload = memoryview(model.parameters().numpy().astype("<f4").tobytes())

    assert model.parameters_digest() == hash_tree.root(hash_tree.leaves(payload), len(payload))


def test_digests_follow_the_state(model: TrainingModel) -> None:
    parameters, state = model.parameters_digest(), model.state_digest()
    model.apply(torch.zeros(model.dimension))

    assert model.parameters_digest() == parameters, "adam does not move along a zero gradient"
    assert model.state_digest() != state, "but its step counts"


def test_a_fresh_process_resumes_bit_for_bit_with_every_optimizer(
    tiny_job: Callable[..., Job],
    aggregate_at: Callable[[int, int], torch.Tensor],
    user_code: Path,
    tmp_path: Path,
) -> None:
    expected = []
    for number, optimizer in enumerate(OPTIMIZERS):
        model = TrainingModel.build(tiny_job(optimizer))
        for version in range(1, 11):
            model.apply(aggregate_at(version, model.dimension))
            if version == 5:
                state = model.export_state()
                store = CheckpointStore(LocalStorage(tmp_path / str(number)), "tiny")
                store.write(Checkpoint(5, bytes(32), state.digest()), state)
        digests = model.parameters_digest().hex(), model.state_digest().hex()
        expected.append(f"10 {digests[0]} {digests[1]}")

    arguments = [str(Path(__file__).parents[1]), str(user_code), str(tmp_path), *OPTIMIZERS]
    done = subprocess.run(
        [sys.executable, "-c", RESUME, *arguments], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == expected, done.stderr


def test_a_learning_rate_changed_on_the_way_is_part_of_the_state(
    tiny_job: Callable[..., Job],
) -> None:
    model = TrainingModel.build(tiny_job())
    before = model.state_digest()
    model.learning_rate = 0.5
    other = TrainingModel.build(tiny_job())
    other.restore_state(model.export_state())

    assert other.learning_rate == 0.5
    assert other.state_digest() == model.state_digest() != before


def test_settings_survive_json(model: TrainingModel) -> None:
    state = model.export_state()
    again = TrainingState(state.tensors, json.loads(json.dumps(dict(state.settings))))

    assert again.digest() == state.digest()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parameters/0.bias": None}, "'0.bias' is on one side only"),
        ({"parameters/9.bias": torch.zeros(1)}, "'9.bias' is on one side only"),
        ({"constants/c": torch.zeros(1)}, "'c' is on one side only"),
        ({"parameters/0.bias": torch.zeros(6)}, r"0\.bias is torch\.float32 \(6,\)"),
        ({"parameters/0.bias": torch.zeros(5).double()}, r"0\.bias is torch\.float64"),
    ],
)
def test_the_state_of_another_model_is_refused(
    model: TrainingModel, change: dict[str, torch.Tensor | None], reason: str
) -> None:
    state = model.export_state()
    tensors = {
        name: tensor for name, tensor in ({**state.tensors, **change}).items() if tensor is not None
    }
    with pytest.raises(ModelStateError, match=reason):
        model.restore_state(TrainingState(tensors, state.settings))


@pytest.mark.parametrize("settings", [{}, {"step": 1}, {"step": "1", "optimizer": {}}])
def test_a_state_without_settings_is_refused(
    model: TrainingModel, settings: dict[str, object]
) -> None:
    with pytest.raises(ModelStateError, match="no step, or no optimizer settings"):
        model.restore_state(TrainingState(model.export_state().tensors, settings))


def test_buffers_and_frozen_parameters_are_kept_but_not_stepped() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    module.register_buffer("scale", torch.tensor([2.0]))
    model = TrainingModel(module, "sgd", {"lr": 1.0}, Mean())
    frozen = model.named_parameters()["0.weight"]
    model.apply(torch.ones(model.dimension))

    assert model.dimension == 3 * 2 + 2
    assert torch.equal(model.named_parameters()["0.weight"], frozen)
    constants = {name for name in model.export_state().tensors if name.startswith("constants/")}
    assert constants == {"constants/0.weight", "constants/0.bias", "constants/scale"}


def test_tied_parameters_step_together() -> None:
    module = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    module["b"].weight = module["a"].weight
    model = TrainingModel(module, "sgd", {"lr": 1.0}, Mean())
    model.apply(torch.ones(model.dimension))
    named = model.named_parameters()

    assert torch.equal(named["a.weight"], named["b.weight"])
    assert not any(name.startswith("constants/") for name in model.export_state().tensors)


CLIPPING = 'name = "centered-clipping", f = 1'


def test_what_the_rule_remembers_is_part_of_the_state(tiny_job: Callable[..., Job]) -> None:
    model = TrainingModel.build(tiny_job(rule=CLIPPING))
    assert model.memory is None
    vector = aggregate(model)
    model.apply(vector)
    remembered = vector.clone()
    before = model.state_digest()
    vector.zero_()  # the caller's memory, used again
    assert model.memory is not None
    assert torch.equal(model.memory["centre"], remembered)
    assert torch.equal(model.export_state().tensors["memory/centre"], remembered)
    assert model.state_digest() == before
    model.memory = {"centre": remembered + 1}
    assert model.state_digest() != before


def test_memory_comes_back_with_the_state(tiny_job: Callable[..., Job], tmp_path: Path) -> None:
    model = TrainingModel.build(tiny_job(rule=CLIPPING))
    first = model.export_state()
    fresh = TrainingState(
        {name: each.clone() for name, each in first.tensors.items()}, first.settings
    )
    model.apply(aggregate(model))
    store = CheckpointStore(LocalStorage(tmp_path), "tiny")
    store.write(Checkpoint(1, bytes(32), model.state_digest()), model.export_state())
    restored = TrainingModel.build(tiny_job(rule=CLIPPING))
    restored.restore_state(store.read(store.places()[0])[1])
    assert restored.state_digest() == model.state_digest()
    restored.restore_state(fresh)  # that of before the first round
    assert restored.memory is None


def test_the_memory_of_another_rule_is_refused(
    tiny_job: Callable[..., Job], model: TrainingModel
) -> None:
    other = TrainingModel.build(tiny_job(rule=CLIPPING))
    other.apply(aggregate(other))
    with pytest.raises(ModelStateError, match="multi-krum has no memory"):
        model.restore_state(other.export_state())
