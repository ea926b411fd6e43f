import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import MultiKrum
from pliska.aggregation.geometry import Geometry
from pliska.aggregation.krum import krum_scores
from pliska.aggregation.rows import Rows

small = hnp.arrays(np.int8, st.tuples(st.integers(3, 8), st.integers(1, 6)))


def geometry_of(matrix: torch.Tensor, *landmarks: str) -> Geometry:
    return Geometry.of(Rows(tuple(matrix), matrix.shape[1]), landmarks)


@given(matrix=small, centre=st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_inner_products_about_any_point_are_the_obvious_ones(
    matrix: np.ndarray, centre: int
) -> None:
    rows = torch.from_numpy(matrix).double()
    moved = rows - rows[centre]
    assert torch.allclose(geometry_of(rows).about(centre), moved @ moved.T, atol=1e-6)


@given(matrix=small, seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_mixing_follows_the_points(matrix: np.ndarray, seed: int) -> None:
    rows = torch.from_numpy(matrix).double()
    coefficients = torch.rand(4, len(rows), generator=torch.Generator().manual_seed(seed)).double()
    coefficients /= coefficients.sum(dim=1, keepdim=True)
    mixed = geometry_of(rows).mixed(coefficients)
    found = coefficients @ rows
    expected = torch.cdist(found, found, compute_mode="donot_use_mm_for_euclid_dist").square()
    assert torch.allclose(mixed.distances, expected, atol=1e-6), f"seed={seed}"
    moved = found - found[0]
    assert torch.allclose(mixed.about(0), moved @ moved.T, atol=1e-6), f"seed={seed}"


def test_landmarks_stay_where_they_are() -> None:
    rows = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    geometry = geometry_of(rows, "origin")
    assert geometry.n == 2
    half_way = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    mixed = geometry.mixed(half_way)
    assert mixed.landmarks == {"origin": 1}
    assert mixed.distances[0, 1].item() == pytest.approx(1.5**2 + 2**2)


def test_equal_mixtures_are_at_distance_zero_exactly() -> None:
    rows = 1e6 + torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    same = torch.full((3, 6), 1 / 6, dtype=torch.float64)
    assert torch.equal(geometry_of(rows).mixed(same).distances, torch.zeros(3, 3).double())


def test_medoid_lies_among_the_honest_wherever_the_liars_are() -> None:
    generator = torch.Generator().manual_seed(2)
    for size in (1.0, 1e3, 1e30, 1e38):
        lies = size * torch.randn(4, 20, generator=generator).clamp(-3, 3)
        rows = torch.vstack([lies, torch.randn(5, 20, generator=generator)])
        assert geometry_of(rows).medoid >= 4 or size == 1.0


@pytest.mark.parametrize("size", [1.0, 1e10, 1e30, 1e38])
def test_a_far_liar_with_a_tiny_weight_blurs_nothing(size: float) -> None:
    # From squared distances alone the honest ones would drown in size^2.
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(6, 30, generator=generator)
    rows[0] = size * torch.randn(30, generator=generator).sign()
    weights = torch.tensor([0.2 / size, *[0.2] * 5], dtype=torch.float64)
    weights /= weights.sum()
    exact = rows.double()
    expected = (exact - weights @ exact).square().sum(dim=1)
    geometry = geometry_of(rows)
    found = geometry.seen_from(geometry.medoid).squared_distances_to(weights.numpy())
    assert np.allclose(found, expected, rtol=1e-9)


def test_points_that_coincide_have_no_direction() -> None:
    view = geometry_of(torch.ones(4, 3)).seen_from(0)
    assert np.isfinite(view.cosines).all()
    assert not view.squared_distances_to(np.full(4, 0.25)).any()


def test_what_is_worked_out_in_blocks_of_many_rows_is_the_obvious() -> None:
    rows = torch.randn(700, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    geometry = geometry_of(rows)
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    assert torch.allclose(geometry.distances, distances, atol=1e-9)
    assert geometry.medoid == distances.sort(dim=1).values[:, 350].argmin()
    moved = rows - rows[600]
    assert torch.allclose(geometry.about(600), moved @ moved.T, atol=1e-9)
    nearest = distances.fill_diagonal_(torch.inf).sort(dim=1).values[:, : 700 - 100 - 2]
    scores = krum_scores(geometry.between_rows, 100, "blanchard")
    assert torch.allclose(torch.tensor(scores, dtype=torch.float64), nearest.sum(dim=1), atol=1e-6)


def test_a_rule_and_its_report_take_four_matrices_of_n_by_n_numbers() -> None:
    n = 1000
    rows = torch.randn(n, 1200, generator=torch.Generator().manual_seed(5))
    MultiKrum(f=200)(rows)  # what is kept for the next call
    tracemalloc.start()
    try:
        result = MultiKrum(f=200)(rows)
        assert len(result.report) == n
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 8 * n * n
