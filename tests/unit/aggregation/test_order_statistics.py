import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import order_statistics
from pliska.aggregation.order_statistics import band_mean
from pliska.aggregation.rows import Rows

finite_matrices = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 12), st.integers(1, 8)),
    elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
)


@pytest.fixture(params=["few values", "many values"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do everything as if there were few values, then as if there were many."""
    if request.param == "many values":
        monkeypatch.setattr(order_statistics, "COMPILED_ELEMENTS_MIN", 0)


@given(matrix=finite_matrices, data=st.data())
@settings(max_examples=100, deadline=None)
def test_band_mean_equals_the_obvious_one(matrix: np.ndarray, data: st.DataObject) -> None:
    n = len(matrix)
    start = data.draw(st.integers(0, n - 1))
    band = range(start, data.draw(st.integers(start + 1, n)))
    made = band_mean(Rows(tuple(torch.from_numpy(matrix)), matrix.shape[1]), band)
    exact = np.sort(matrix.astype(np.float64), axis=0)
    expected = exact[band.start : band.stop].mean(axis=0)
    assert np.allclose(made.vector, expected.astype(np.float32), rtol=1e-6, atol=1e-37)
    low, high = exact[band.start], exact[band.stop - 1]
    kept = ((matrix >= low) & (matrix <= high)).sum(axis=1)
    assert list(made.kept) == list(kept)


@pytest.mark.usefixtures("way")
def test_distances_leave_buffers_out() -> None:
    rows = Rows((torch.tensor([1.0, 5.0, 7.0]), torch.tensor([3.0, 1.0, -7.0])), 2)
    assert band_mean(rows, range(2)).distances.tolist() == [5.0, 5.0]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("scale", [1e-38, 1e-25, 1e-10, 1.0, 1e10, 1e25, 1e38])
def test_report_holds_at_every_scale(scale: float) -> None:
    # Squares of values beyond 1e19 or below 1e-19 leave the range of float32.
    matrix = (torch.randn(5, 40, generator=torch.Generator().manual_seed(1)) / 4) * scale
    made = band_mean(Rows(tuple(matrix), 40), range(1, 4))
    expected = (matrix.double() - made.vector.double()).square().sum(dim=1).tolist()
    assert made.distances.tolist() == pytest.approx(expected, rel=1e-5, abs=0)


@pytest.mark.usefixtures("way")
def test_one_huge_value_takes_nothing_from_the_others() -> None:
    # "Sum minus the extremes" gives 0 here: 1e20 swallows what is added to it.
    rows = Rows(tuple(torch.tensor([[1.0], [2.0], [3.0], [1e20]])), 1)
    assert band_mean(rows, range(1, 3)).vector.item() == 2.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("n", [5, 70])
def test_large_inputs_of_every_dtype_equal_the_sort(dtype: torch.dtype, n: int) -> None:
    d = order_statistics.COMPILED_ELEMENTS_MIN // n + 7
    matrix = torch.randn(n, d, generator=torch.Generator().manual_seed(n)).to(dtype)
    made = band_mean(Rows(tuple(matrix), d), range(2, n - 2))
    expected = matrix.double().sort(dim=0).values[2 : n - 2].mean(dim=0)
    assert torch.equal(made.vector, expected.to(made.vector.dtype))
    distances = (matrix.double() - made.vector.double()).square().sum(dim=1)
    assert made.distances.tolist() == pytest.approx(distances.tolist(), rel=1e-6)
