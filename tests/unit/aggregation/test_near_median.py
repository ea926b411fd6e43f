import statistics

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import order_statistics
from pliska.aggregation.near_median import near_median_mean
from pliska.aggregation.rows import Rows


@pytest.fixture(params=["few values", "many values"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do everything as if there were few values, then as if there were many."""
    if request.param == "many values":
        monkeypatch.setattr(order_statistics, "COMPILED_ELEMENTS_MIN", 0)


def slow(column: list[float], keep: int) -> float:
    middle = statistics.median(column)
    nearest = sorted(range(len(column)), key=lambda i: (abs(column[i] - middle), i))[:keep]
    return sum(column[i] for i in nearest) / keep


@given(matrix=hnp.arrays(np.int8, st.tuples(st.integers(1, 9), st.integers(1, 6))), data=st.data())
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.usefixtures("way")
def test_mean_near_the_median_is_the_obvious_one(matrix: np.ndarray, data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, len(matrix)))
    rows = Rows(tuple(torch.from_numpy(matrix.astype(np.float32))), matrix.shape[1])
    made = near_median_mean(rows, keep)
    expected = [slow([float(v) for v in column], keep) for column in matrix.T]
    assert made.vector.tolist() == pytest.approx(expected, rel=1e-6)
    assert sum(made.kept) >= keep * matrix.shape[1]


@pytest.mark.usefixtures("way")
def test_exactly_as_many_are_kept_as_asked_for() -> None:
    rows = Rows(tuple(torch.tensor([[4.0], [0], [2], [9], [1]])), 1)
    assert near_median_mean(rows, 3).kept.tolist() == [1, 0, 1, 0, 1]


@pytest.mark.usefixtures("way")
def test_last_bits_do_not_tie() -> None:
    # In float32, 1 - 2^-24 and 1 + 2^-23 lie equally far from 1 only if rounded.
    values = [1 + 2.0**-23, 1.0, 1 - 2.0**-24]
    rows = Rows(tuple(torch.tensor([[value] for value in values])), 1)
    assert near_median_mean(rows, 2).kept.tolist() == [0, 1, 1]
