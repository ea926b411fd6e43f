import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import Krum
from pliska.aggregation.distances import (
    COMPILED_ELEMENTS_MIN,
    distances_to_combination,
    squared_distances,
)
from pliska.aggregation.engine import twins
from pliska.aggregation.rows import Rows


def rows_of(matrix: torch.Tensor, measured: int | None = None) -> Rows:
    return Rows(tuple(matrix), matrix.shape[1] if measured is None else measured)


def slow(matrix: torch.Tensor) -> np.ndarray:
    exact = matrix.double().numpy()
    return np.array([[((x - y) ** 2).sum() for y in exact] for x in exact])


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(2, 9), st.integers(1, 12)),
        elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
    )
)
@settings(max_examples=100, deadline=None)
def test_distances_equal_the_obvious_ones(matrix: np.ndarray) -> None:
    rows = torch.from_numpy(matrix)
    assert np.allclose(squared_distances(rows_of(rows)), slow(rows), rtol=1e-6, atol=0)


def test_largest_floats_do_not_overflow() -> None:
    rows = torch.tensor([[3.4e38, -3.4e38], [-3.4e38, 3.4e38], [0.0, 0.0]])
    assert np.allclose(squared_distances(rows_of(rows)), slow(rows))


@pytest.mark.parametrize("offset", [0.0, 10.0, 100.0, 1000.0, 1e6])
def test_common_offset_cancels(offset: float) -> None:
    # |x|^2 + |y|^2 - 2xy in float32 loses distances of 1e-3 beside an offset of 10.
    generator = torch.Generator().manual_seed(1)
    rows = offset + 1e-3 * torch.randn(8, 20_000, generator=generator)
    distances = squared_distances(rows_of(rows))
    assert np.allclose(distances, slow(rows), rtol=1e-9, atol=0)


def test_liar_as_a_far_reference_does_not_blur_the_others() -> None:
    # Three rows of middle length point elsewhere; the honest differ by 1e-4.
    generator = torch.Generator().manual_seed(2)
    honest = 1e6 + 1e-1 * torch.randn(4, 1000, generator=generator)
    lies = torch.cat([0 * honest[:1], -honest[:1], 3 * honest[:1]])
    rows = torch.cat([lies, honest])
    assert np.allclose(squared_distances(rows_of(rows)), slow(rows), rtol=1e-9, atol=0)


@pytest.mark.parametrize("offset", [100.0, 1000.0])
def test_krum_never_chooses_a_far_liar_for_the_offset(offset: float) -> None:
    # Flower's picks a liar 30 times farther away in 6 of 40 draws, ByzFL's in 19 of 20.
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        rows = offset + 1e-3 * torch.randn(30, 2000, generator=generator)
        rows[:7] += 0.03 * torch.randn(7, 2000, generator=generator)
        chosen = [entry.worker for entry in Krum(f=7)(rows).report if entry.weight]
        assert int(chosen[0]) >= 7, f"seed={seed}"


def test_row_is_not_its_own_neighbour_even_beside_a_twin() -> None:
    # 0 and 1 are twins: each other's nearest at distance zero.
    rows = torch.tensor([[5.0], [5.0], [0.0], [1.0], [9.0]])
    scores = [float(e.reason.split()[2].strip(",")) for e in Krum(f=1)(rows).report]
    assert scores == [16.0, 16.0, 26.0, 17.0, 32.0]


def test_only_measured_columns_count() -> None:
    rows = torch.tensor([[0.0, 9.0], [3.0, -9.0]])
    assert squared_distances(rows_of(rows, measured=1)).tolist() == [[0, 9], [9, 0]]


def test_diagonal_is_zero_and_matrix_symmetric() -> None:
    rows = 1000 + torch.randn(9, 500, generator=torch.Generator().manual_seed(3))
    distances = squared_distances(rows_of(rows))
    assert torch.equal(distances.diagonal(), torch.zeros(9, dtype=torch.float64))
    assert torch.equal(distances, distances.T)


def test_distances_to_a_combination_follow_from_those_between_rows() -> None:
    rows = torch.randn(6, 30, generator=torch.Generator().manual_seed(4)).double()
    weights = [0.5, 0.0, 0.25, 0.25, 0.0, 0.0]
    combination = torch.tensor(weights, dtype=torch.float64) @ rows
    expected = (rows - combination).square().sum(dim=1).tolist()
    found = distances_to_combination(squared_distances(rows_of(rows)), weights)
    assert found == pytest.approx(expected)


LARGE = COMPILED_ELEMENTS_MIN // 9 + 5
"""Columns of nine rows that are multiplied in float32 blocks."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_large_rows_equal_the_obvious_distances(dtype: torch.dtype) -> None:
    rows = torch.randn(9, LARGE, generator=torch.Generator().manual_seed(5)).to(dtype)
    assert np.allclose(squared_distances(rows_of(rows)), slow(rows), rtol=1e-6, atol=0)


@pytest.mark.parametrize("offset", [10.0, 1e3, 1e6])
def test_common_offset_cancels_in_large_rows(offset: float) -> None:
    rows = offset + 0.1 * torch.randn(9, LARGE, generator=torch.Generator().manual_seed(6))
    assert np.allclose(squared_distances(rows_of(rows)), slow(rows), rtol=1e-6, atol=0)


def test_clusters_within_clusters_are_each_measured_about_their_own_centre() -> None:
    # Every level is 1000 times closer together than the one around it.
    generator = torch.Generator().manual_seed(7)
    rows = torch.zeros(9, LARGE)
    for level, members in enumerate([range(9), range(1, 8), range(3, 7)]):
        spread = torch.randn(len(members), LARGE, generator=generator)
        rows[members.start : members.stop] = rows[members.start].clone() + 1000.0**-level * spread
    assert np.allclose(squared_distances(rows_of(rows)), slow(rows), rtol=1e-6, atol=0)


def test_equal_rows_are_at_distance_exactly_zero_and_look_alike_from_elsewhere() -> None:
    rows = torch.randn(9, LARGE, generator=torch.Generator().manual_seed(8))
    rows[5] = rows[2]
    rows[7] = rows[2]
    distances = squared_distances(rows_of(rows))
    assert distances[2, 5] == distances[2, 7] == distances[5, 7] == 0
    others = [0, 1, 3, 4, 6, 8]
    assert torch.equal(distances[2, others], distances[5, others])
    assert torch.equal(distances[2, others], distances[7, others])


@pytest.mark.parametrize("scale", [1e-25, 1e30])
def test_large_rows_beyond_the_squares_of_float32_are_measured_in_float64(scale: float) -> None:
    rows = scale * torch.randn(9, LARGE, generator=torch.Generator().manual_seed(9))
    assert np.allclose(squared_distances(rows_of(rows)), slow(rows), rtol=1e-6, atol=0)


def test_order_of_rows_changes_no_bit_of_a_distance() -> None:
    rows = torch.randn(9, LARGE, generator=torch.Generator().manual_seed(10))
    order = torch.tensor([4, 8, 0, 2, 6, 1, 3, 7, 5])
    distances = squared_distances(rows_of(rows))
    moved = squared_distances(rows_of(rows[order]))
    assert torch.equal(moved, distances[order][:, order])


@pytest.mark.parametrize("scale", [1.0, 1e-25])
def test_copies_are_multiplied_once_and_nothing_else_changes(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = scale * torch.randn(9, LARGE, generator=torch.Generator().manual_seed(11))
    rows[6:] = rows[0]
    rows[4] = rows[3]
    found = squared_distances(rows_of(rows))
    assert np.allclose(found, slow(rows), rtol=1e-6, atol=0)
    for copies in ([0, 6, 7, 8], [3, 4]):
        assert not found[copies][:, copies].any()
    monkeypatch.setattr(twins, "originals", lambda rows, *_: list(range(len(rows))))
    if scale == 1.0:
        assert torch.equal(found, squared_distances(rows_of(rows)))


def test_rows_that_are_all_the_same_are_at_distance_zero() -> None:
    row = torch.randn(LARGE, generator=torch.Generator().manual_seed(12))
    assert not squared_distances(rows_of(row.expand(9, LARGE).clone())).any()
    assert not squared_distances(rows_of(torch.zeros(9, LARGE))).any()


def test_copies_with_one_bit_changed_are_no_copies() -> None:
    rows = torch.randn(1, LARGE, generator=torch.Generator().manual_seed(13)).repeat(9, 1)
    rows[4, LARGE // 2 + 77] += 1e-3
    assert np.allclose(squared_distances(rows_of(rows)), slow(rows), rtol=1e-6, atol=0)
