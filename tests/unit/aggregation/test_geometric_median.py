import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import GeometricMedian


def total(rows: np.ndarray, point: np.ndarray) -> float:
    return float(np.sqrt(((rows - point) ** 2).sum(axis=1)).sum())


def slow(rows: np.ndarray) -> float:
    """The least total distance that plain Weiszfeld in full space, or any row, reaches."""
    point = np.median(rows, axis=0) + 1e-3
    for _ in range(3000):
        gaps = np.maximum(np.sqrt(((rows - point) ** 2).sum(axis=1)), 1e-12)
        point = (rows / gaps[:, None]).sum(axis=0) / (1 / gaps).sum()
    return min(total(rows, point), *(total(rows, row) for row in rows))


@given(matrix=hnp.arrays(np.int8, st.tuples(st.integers(1, 9), st.integers(1, 5))))
@settings(max_examples=40, deadline=None)
def test_no_point_has_a_smaller_total_distance(matrix: np.ndarray) -> None:
    rows = matrix.astype(np.float64)
    found = GeometricMedian(f=0)(torch.from_numpy(rows)).vector.numpy()
    least = slow(rows)
    assert total(rows, found) <= least * (1 + 1e-7) + 1e-9


def test_on_a_line_it_is_the_median() -> None:
    for values in ([3, 1, 2], [5, 1, 2, 9], [1, 1, 1, 7], [0, 0, 8, 8]):
        rows = torch.tensor(values, dtype=torch.float64)[:, None]
        expected = float(np.median(values))
        assert GeometricMedian(f=0)(rows).vector.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1.0, 1e20])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_neither_scale_nor_offset_matter(scale: float, offset: float) -> None:
    rows = torch.randn(9, 30, generator=torch.Generator().manual_seed(1)).double()
    expected = GeometricMedian(f=2)(rows).vector
    found = GeometricMedian(f=2)((rows + offset) * scale).vector / scale - offset
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("size", [1e3, 1e10, 1e38])
def test_far_liars_pull_no_more_than_near_ones(size: float) -> None:
    generator = torch.Generator().manual_seed(2)
    honest = torch.randn(7, 30, generator=generator).double()
    direction = torch.randn(2, 30, generator=generator).double().sign()
    near = GeometricMedian(f=2)(torch.vstack([1e3 * direction, honest])).vector
    far = GeometricMedian(f=2)(torch.vstack([size * direction, honest])).vector
    assert float((far - near).norm()) < 0.01


def test_points_that_coincide_divide_by_nothing() -> None:
    rows = torch.tensor([[1.0, 2.0]] * 4 + [[5.0, 9.0]] * 2)
    assert torch.equal(GeometricMedian(f=1)(rows).vector, rows[0])


def test_the_set_of_minima_is_halved() -> None:
    # Two rows: every point between them is a median.
    rows = torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    assert GeometricMedian(f=0)(rows).vector.tolist() == [1, 2]
