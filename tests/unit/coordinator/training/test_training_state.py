import torch

from pliska.coordinator.training.training_state import TrainingState, tensor_bytes


def state(**tensors: torch.Tensor) -> TrainingState:
    return TrainingState(tensors, {"step": 3, "lr": 0.1})


def test_equal_states_have_equal_digests_in_any_order() -> None:
    a, b = torch.arange(6.0).reshape(2, 3), torch.tensor(4)

    assert state(a=a, b=b).digest() == state(b=b.clone(), a=a.clone()).digest()


def test_every_part_of_a_state_changes_its_digest() -> None:
    tensor = torch.arange(6.0)
    base = TrainingState({"a": tensor}, {"step": 3})
    others = [
        TrainingState({"a": tensor}, {"step": 4}),
        TrainingState({"a": tensor}, {"step": 3.0}),
        TrainingState({"b": tensor}, {"step": 3}),
        TrainingState({"a": tensor.reshape(2, 3)}, {"step": 3}),
        TrainingState({"a": tensor.view(torch.int32)}, {"step": 3}),
        TrainingState({"a": torch.nextafter(tensor, torch.tensor(9.0))}, {"step": 3}),
        TrainingState({"a": tensor, "b": torch.zeros(0)}, {"step": 3}),
        TrainingState({}, {"step": 3}),
    ]

    digests = {other.digest() for other in others} | {base.digest()}
    assert len(digests) == len(others) + 1


def test_minus_zero_is_not_zero() -> None:
    assert state(a=torch.tensor(0.0)).digest() != state(a=torch.tensor(-0.0)).digest()


def test_a_strided_tensor_has_the_digest_of_its_elements_in_c_order() -> None:
    square = torch.arange(9.0).reshape(3, 3)

    assert state(a=square.T).digest() == state(a=square.T.contiguous()).digest()


def test_tensor_bytes_shares_memory_where_it_can() -> None:
    tensor = torch.zeros(4)
    view = tensor_bytes(tensor)
    tensor += 1

    assert view.tobytes() == torch.ones(4).numpy().tobytes()


def test_scalars_empty_tensors_and_bfloat16_have_bytes() -> None:
    assert tensor_bytes(torch.tensor(1.0)).nbytes == 4
    assert tensor_bytes(torch.zeros(0, 3)).nbytes == 0
    assert tensor_bytes(torch.ones(2, dtype=torch.bfloat16)).tobytes() == b"\x80\x3f\x80\x3f"
