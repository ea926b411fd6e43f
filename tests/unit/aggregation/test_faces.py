from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pliska.aggregation import (
    CoordinateMedian,
    GradientBuffer,
    Krum,
    Mean,
    MultiKrum,
    ShapeError,
    TooManyBadRowsError,
    WorkerNameError,
)
from pliska.aggregation.faces import canonical


def reasons(report: Any) -> dict[str, str]:
    return {entry.worker: entry.reason for entry in report if entry.verdict == "refused"}


def test_canonical_order_puts_w2_before_w10() -> None:
    workers = ["w10", "b", "w2", "a", "w1"]
    assert [workers[i] for i in canonical(workers)] == ["a", "b", "w1", "w2", "w10"]


def test_row_of_another_shape_or_dtype_costs_its_sender() -> None:
    rows = [torch.ones(2, 3) for _ in range(6)]
    rows[1] = torch.ones(3, 2)
    rows[4] = torch.ones(2, 3, dtype=torch.float64)
    result = Mean(f=2)(rows)
    assert torch.equal(result.vector, torch.ones(2, 3))
    assert reasons(result.report) == {
        "1": "torch.float32 (3, 2) on cpu, expected torch.float32 (2, 3) on cpu",
        "4": "torch.float64 (2, 3) on cpu, expected torch.float32 (2, 3) on cpu",
    }


def test_numpy_row_that_is_not_floating_costs_its_sender() -> None:
    rows = [np.ones(3, np.float32) for _ in range(5)]
    rows[2] = np.ones(3, np.int64)
    rows[3] = np.array(["a", "b", "c"])
    assert reasons(Mean(f=2)(rows).report) == {
        "2": "int64 is no floating dtype",
        "3": "<U1 is no floating dtype",
    }


def test_read_only_reversed_and_foreign_arrays_are_read() -> None:
    base = np.arange(12, dtype=np.float32).reshape(4, 3)
    frozen = base.copy()
    frozen.flags.writeable = False
    expected = Mean()(base).vector
    for rows in (frozen, base[::-1], base.astype(">f4")):
        assert np.array_equal(Mean()(rows).vector, expected)


def test_numpy_comes_back_as_numpy_of_the_same_dtype() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        vector = Mean()(np.ones((3, 2), dtype)).vector
        assert isinstance(vector, np.ndarray)
        assert vector.dtype == dtype


def test_float64_is_computed_in_float64() -> None:
    rows = torch.tensor([[1.0], [1.0 + 2**-40], [2.0]], dtype=torch.float64)
    assert CoordinateMedian(f=1)(rows).vector.item() == 1.0 + 2**-40


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.ones(3), r"\[n, d\]"),
        (torch.ones(3, 2, dtype=torch.int64), "torch.int64"),
        (np.ones((3, 2), np.int32), "int32"),
        ([torch.ones(2), np.ones(2)], "ndarray"),
        ([1.0, 2.0], "float"),
        ([{"a": None}, {"a": None}], "'a' is a NoneType"),
        (torch.ones(3, 0), "hold no values"),
        ([{"steps": torch.tensor(1)}] * 3, "no floating values"),
    ],
)
def test_rows_that_cannot_be_read_are_an_error(rows: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Mean(f=1)(rows)


def test_worker_ids_must_be_one_per_row_and_distinct() -> None:
    rows = torch.ones(3, 2)
    with pytest.raises(WorkerNameError, match="2 worker ids for 3 rows"):
        Mean()(rows, worker_ids=["a", "b"])
    with pytest.raises(WorkerNameError, match="'a' has more than one row"):
        Mean()(rows, worker_ids=["a", "b", "a"])


def test_buffer_knows_its_workers() -> None:
    buffer = GradientBuffer(4, 2)
    for worker in ("w10", "w9", "w1"):
        index = buffer.claim(worker)
        buffer.row(index).fill_(float(worker[1:]))
        buffer.mark_filled(index)
    buffer.row(buffer.claim("slow")).fill_(torch.nan)
    result = CoordinateMedian(f=1)(buffer)
    assert result.vector.tolist() == [9, 9]
    assert [entry.worker for entry in result.report] == ["w1", "w9", "w10"]
    with pytest.raises(WorkerNameError, match="knows its workers"):
        Mean()(buffer, worker_ids=["a", "b", "c"])


def batch_norm_states(n: int) -> list[dict[str, Tensor]]:
    states = []
    for i in range(n):
        module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        state = {name: torch.full_like(value, i) for name, value in module.state_dict().items()}
        states.append(state)
    return states


def test_state_dicts_come_back_with_counters_as_integers() -> None:
    result = CoordinateMedian(f=2)(batch_norm_states(5))
    state = result.state_dict
    nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).load_state_dict(state)
    assert state["1.num_batches_tracked"].dtype == torch.int64
    assert state["1.num_batches_tracked"].item() == 2
    assert torch.equal(state["0.weight"], torch.full((2, 3), 2.0))
    assert torch.equal(state["1.running_var"], torch.full((2,), 2.0))


def test_liars_counter_does_not_win() -> None:
    states = batch_norm_states(5)
    states[4]["1.num_batches_tracked"] = torch.tensor(2**62)
    assert CoordinateMedian(f=2)(states).state_dict["1.num_batches_tracked"].item() == 2


def test_counters_and_buffers_do_not_decide_who_is_chosen() -> None:
    # Flower counts num_batches_tracked in Krum's distances: honest counters between
    # 230 and 300 made it choose a liar shifted by 1 in every weight.
    generator = torch.Generator().manual_seed(7)
    states = []
    for i in range(9):
        state = {
            "weight": 0.01 * torch.randn(1000, generator=generator),
            "bn.running_mean": 100 * torch.randn(4, generator=generator),
            "bn.num_batches_tracked": torch.tensor(230 + 8 * i),
        }
        if i in (4, 5):
            state["weight"] = state["weight"] - 1
            state["bn.running_mean"] = torch.zeros(4)
            state["bn.num_batches_tracked"] = torch.tensor(261 + i)
        states.append(state)
    for rule in (Krum(f=2), MultiKrum(f=2)):
        result = rule(states)
        assert {entry.worker for entry in result.report if entry.weight} & {"4", "5"} == set()
        assert float(result.state_dict["weight"].mean()) > -0.1


def test_tied_weights_count_once() -> None:
    shared = [torch.full((2,), float(i)) for i in range(4)]
    states = [{"encoder": tensor, "decoder": tensor} for tensor in shared]
    result = Mean()(states)
    assert result.vector.shape == (2,)
    assert result.state_dict["encoder"] is result.state_dict["decoder"]


def test_state_dict_that_does_not_fit_costs_its_sender() -> None:
    states: list[Any] = batch_norm_states(8)
    states[1].pop("0.bias")
    states[3]["0.weight"] = states[3]["0.weight"].double()
    states[6]["0.weight"] = "not a tensor"
    assert reasons(Mean(f=3)(states).report) == {
        "1": "entry '0.bias' is missing",
        "3": "entry '0.weight' is torch.float64, expected torch.float32",
        "6": "entry '0.weight' is a str, not a tensor",
    }
    with pytest.raises(TooManyBadRowsError, match="3 of n=8"):
        Mean(f=2)(states)


def test_state_dict_of_plain_rows_is_an_error() -> None:
    with pytest.raises(ShapeError, match="read `vector`"):
        _ = Mean()(torch.ones(2, 2)).state_dict
