import pytest
import torch
from torch import Tensor, nn

from pliska.aggregation import EntryKind, LayoutMismatchError, ShapeError, StateLayout


class Tied(nn.Module):
    """An encoder and decoder that share a weight, with a batch norm between."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.decoder = nn.Linear(3, 4, bias=True)
        self.decoder.weight = self.encoder.weight
        self.register_buffer("scale", torch.ones(2))


def test_parameters_come_first_then_buffers_and_counters_stay_out() -> None:
    layout = StateLayout.of_module(Tied())
    assert [(entry.name, entry.kind, entry.offset) for entry in layout.entries] == [
        ("decoder.bias", EntryKind.PARAMETER, 0),
        ("decoder.weight", EntryKind.PARAMETER, 4),
        ("encoder.weight", EntryKind.PARAMETER, 4),
        ("norm.bias", EntryKind.PARAMETER, 16),
        ("norm.weight", EntryKind.PARAMETER, 20),
        ("norm.running_mean", EntryKind.BUFFER, 24),
        ("norm.running_var", EntryKind.BUFFER, 28),
        ("scale", EntryKind.BUFFER, 32),
        ("norm.num_batches_tracked", EntryKind.COUNTER, -1),
    ]
    assert (layout.measured, layout.d) == (24, 34)


def test_state_dict_alone_tells_buffers_by_their_names() -> None:
    state = nn.BatchNorm1d(4).state_dict()
    layout = StateLayout.of(state)
    assert (layout.measured, layout.d) == (8, 16)
    assert layout == StateLayout.of_module(nn.BatchNorm1d(4))


def test_order_of_the_dict_does_not_matter() -> None:
    state = {name: torch.randn(2) for name in "cab"}
    turned = {name: state[name] for name in "bca"}
    layout = StateLayout.of(state)
    assert StateLayout.of(turned) == layout
    assert torch.equal(layout.flatten(turned), torch.cat([state[name] for name in "abc"]))


def test_flatten_and_unflatten_are_inverse() -> None:
    state: dict[str, Tensor] = {
        "weight": torch.randn(2, 3),
        "half": torch.randn(4).to(torch.bfloat16),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 5),
        "steps": torch.tensor(7),
    }
    layout = StateLayout.of(state)
    back = layout.unflatten(layout.flatten(state), counters={"steps": state["steps"]})
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor), name


def test_tied_names_share_one_tensor_on_the_way_back() -> None:
    module = Tied()
    layout = StateLayout.of_module(module)
    back = layout.unflatten(layout.flatten(module.state_dict()))
    assert back["encoder.weight"] is back["decoder.weight"]


def test_float32_entries_are_views_of_the_vector() -> None:
    layout = StateLayout.of({"a": torch.zeros(2), "b": torch.zeros(3)})
    vector = torch.zeros(5)
    layout.unflatten(vector)["b"][1] = 4
    assert vector.tolist() == [0, 0, 0, 4, 0]


def test_flatten_writes_into_a_row() -> None:
    layout = StateLayout.of({"a": torch.zeros(2)})
    matrix = torch.zeros(3, 2)
    row = layout.flatten({"a": torch.tensor([1.0, 2.0])}, out=matrix[1])
    assert matrix.tolist() == [[0, 0], [1, 2], [0, 0]]
    assert row.data_ptr() == matrix[1].data_ptr()


def test_gradients_that_require_grad_are_copied_without_history() -> None:
    layout = StateLayout.of({"a": torch.zeros(2)})
    assert not layout.flatten({"a": torch.ones(2, requires_grad=True)}).requires_grad


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, "'a' is missing"),
        ({"a": torch.zeros(2), "b": torch.zeros(1)}, "'b' is unknown"),
        ({"a": torch.zeros(3)}, r"'a' has shape \(3,\), expected \(2,\)"),
        ({"a": torch.zeros(2).double()}, r"'a' is torch.float64, expected torch.float32"),
    ],
)
def test_state_that_does_not_fit_is_refused_with_the_entry(
    state: dict[str, Tensor], reason: str
) -> None:
    with pytest.raises(LayoutMismatchError, match=reason):
        StateLayout.of({"a": torch.zeros(2)}).flatten(state)


@pytest.mark.parametrize("out", [torch.zeros(3), torch.zeros(2).double(), torch.zeros(1, 2)])
def test_out_of_another_shape_or_dtype_is_refused(out: Tensor) -> None:
    with pytest.raises(LayoutMismatchError, match=r"out must be float32 \[2\]"):
        StateLayout.of({"a": torch.zeros(2)}).flatten({"a": torch.zeros(2)}, out=out)


def test_vector_of_another_length_is_refused() -> None:
    with pytest.raises(LayoutMismatchError, match=r"\(2,\)"):
        StateLayout.of({"a": torch.zeros(2)}).unflatten(torch.zeros(3))


@pytest.mark.parametrize("value", [torch.zeros(1, dtype=torch.complex64), [1.0], None])
def test_what_is_no_real_tensor_is_refused(value: object) -> None:
    with pytest.raises(ShapeError, match="'a' is"):
        StateLayout.of({"a": value})  # type: ignore[dict-item]


def test_distinct_views_of_one_storage_are_not_tied() -> None:
    base = torch.arange(4.0)
    layout = StateLayout.of({"a": base[:2], "b": base[2:], "c": base[::2]})
    assert layout.d == 6
