import math

import pytest
import torch
from torch import Tensor

from pliska.aggregation import Gate, Mean, ParameterError
from pliska.aggregation.rows import Rows


def rows_of(*values: list[float], measured: int | None = None) -> Rows:
    tensors = tuple(torch.tensor(row) for row in values)
    return Rows(tensors, len(values[0]) if measured is None else measured)


def test_finite_rows_pass_whatever_their_size() -> None:
    assert Gate().refusals(rows_of([1.0, -2.0], [3.4e38, -3.4e38], [0.0, 1e-45])) == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_reason_says_where_and_how_many(value: float) -> None:
    rows = rows_of([0.0, 0.0, 0.0], [0.0, value, value])
    assert Gate().refusals(rows) == {1: f"{value:g} at column 1; 2 of its values are not finite"}


def test_value_in_a_buffer_must_be_finite_too() -> None:
    assert list(Gate().refusals(rows_of([0.0, math.nan], measured=1))) == [0]


def test_norm_at_the_limit_passes_and_above_is_refused() -> None:
    gate = Gate(norm_max=5.0)
    assert gate.refusals(rows_of([3.0, 4.0], [3.0, 4.001])) == {1: "norm 5 is above the limit of 5"}


def test_buffers_do_not_count_for_the_norm() -> None:
    assert Gate(norm_max=5.0).refusals(rows_of([3.0, 4.0, 1e9], measured=2)) == {}


def test_float64_row_too_long_for_its_square_is_refused() -> None:
    rows = Rows((torch.tensor([1e200], dtype=torch.float64),), 1)
    assert "norm is above 1e+150" in Gate().refusals(rows)[0]


def test_gate_of_the_caller_is_used(square: Tensor) -> None:
    square[1] = 100
    report = Mean(f=1).aggregate(square, gate=Gate(norm_max=50.0)).report
    assert [entry.weight for entry in report] == [0.5, 0.0, 0.5]


@pytest.fixture
def square() -> Tensor:
    return torch.eye(3)


@pytest.mark.parametrize("norm_max", [0.0, -1.0, math.nan, math.inf, 1e151])
def test_impossible_limit_is_refused(norm_max: float) -> None:
    with pytest.raises(ParameterError, match="norm_max"):
        Gate(norm_max=norm_max)
