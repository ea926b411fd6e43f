import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation.order_statistics import band_mean, comparators, sorted_rows
from pliska.aggregation.rows import Rows


@pytest.mark.parametrize("n", range(1, 13))
def test_network_sorts_every_pattern_of_zeros_and_ones(n: int) -> None:
    # The zero-one principle (Knuth, 5.3.4): enough for all inputs.
    patterns = torch.tensor(list(itertools.product((0.0, 1.0), repeat=n))).T.contiguous()
    expected = patterns.sort(dim=0).values
    for f in range((n + 1) // 2):
        band = range(f, n - f)
        wires = sorted_rows(patterns, band)
        for rank in band:
            assert torch.equal(wires[rank], expected[rank])


@pytest.mark.parametrize("n", [13, 16, 31, 33, 64])
def test_large_networks_sort_random_columns(n: int) -> None:
    block = torch.randn(n, 500, generator=torch.Generator().manual_seed(n))
    wires = sorted_rows(block, range(n))
    assert torch.equal(torch.stack(wires), block.sort(dim=0).values)


def test_network_for_the_median_leaves_comparators_out() -> None:
    assert len(comparators(16, range(16))) == 63
    assert len(comparators(16, range(7, 9))) < 63


def test_sorting_does_not_change_the_block() -> None:
    block = torch.tensor([[3.0], [1.0], [2.0]])
    sorted_rows(block, range(3))
    assert block.tolist() == [[3], [1], [2]]


@given(
    matrix=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 12), st.integers(1, 8)),
        elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
    ),
    data=st.data(),
)
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


def test_distances_leave_buffers_out() -> None:
    rows = Rows((torch.tensor([1.0, 5.0, 7.0]), torch.tensor([3.0, 1.0, -7.0])), 2)
    assert band_mean(rows, range(2)).distances == [5.0, 5.0]
