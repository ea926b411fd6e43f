import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation.engine import bands, blocked_networks
from pliska.aggregation.engine.compiler import Host
from pliska.aggregation.engine.networks import Nearest, Selection
from pliska.aggregation.engine.statistics import Sums
from pliska.aggregation.engine.threads import SPAN_COLUMNS


def checked(
    rows: torch.Tensor,
    selection: Selection | Nearest,
    columns: slice,
    out: torch.Tensor,
    sums: Sums,
) -> None:
    """Compare a result with one that is sorted in float64."""
    part = rows.double()[:, columns]
    ordered = part.sort(dim=0).values
    if isinstance(selection, Nearest):
        n = selection.n
        median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
        gaps = (part - median).abs()
        places = gaps.sort(dim=0, stable=True).indices[: selection.count]
        kept = part.gather(0, places)
        inside = torch.zeros_like(part).scatter_(0, places, 1.0)
    else:
        kept = ordered[selection.band.start : selection.band.stop]
        inside = (part >= kept.amin(dim=0)) & (part <= kept.amax(dim=0))
    assert torch.equal(out[columns], kept.mean(dim=0).float())
    assert sums.kept.tolist() == inside.sum(dim=1).tolist()
    gaps = part - out[columns].double()
    assert np.allclose(sums.distances, gaps.square().sum(dim=1), rtol=1e-6)
    assert np.allclose(sums.lengths, part.square().sum(dim=1), rtol=1e-6)


MANY = (65, 66, 79, 80, 81, 96, 97, 127, 128, 129, 160, 200, 257, 300, 513, 1000)
"""Numbers of rows whose networks are tables."""


@pytest.mark.parametrize("n", [*range(1, 65), *MANY])
def test_every_n_equals_the_sort(target: Host, n: int) -> None:
    d = 300 + n
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    columns = slice(3, d)
    for f in {n // 4, (n - 1) // 2}:
        selection = Selection(n, range(f, n - f))
        out = torch.full((d,), 9.0)
        sums = bands.select_mean(target, tuple(rows), selection, columns, out)
        checked(rows, selection, columns, out, sums)
        assert out[:3].tolist() == [9, 9, 9]


@pytest.mark.parametrize("n", [65, 70, 97])
def test_the_nearest_of_many_rows_equal_the_sort(target: Host, n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    different = torch.randn(n, 150, generator=generator)
    for rows in (different, different.mul(2).round(), torch.zeros(n, 150)):  # and with many ties
        for count in {1, 2, n // 2, n - n // 5, n - 1}:
            out = torch.empty(150)
            selection, columns = Nearest(n, count), slice(0, 150)
            sums = bands.select_mean(target, tuple(rows), selection, columns, out)
            checked(rows, selection, columns, out, sums)


@pytest.mark.parametrize("n", [65, 70, 90])
def test_every_band_of_many_rows_equals_the_sort(target: Host, n: int) -> None:
    rows = torch.randn(n, 150, generator=torch.Generator().manual_seed(n))
    columns = slice(0, 150)
    trims = [range(f, n - f) for f in range((n + 1) // 2)]
    for band in [*trims, range(1), range(n - 1, n), range(1, n), range(n - 7), range(9, 11)]:
        selection = Selection(n, band)
        out = torch.empty(150)
        sums = bands.select_mean(target, tuple(rows), selection, columns, out)
        checked(rows, selection, columns, out, sums)


@pytest.mark.parametrize("n", [4, 7, 16, 21])
def test_every_trim_and_every_number_of_nearest_equals_the_sort(target: Host, n: int) -> None:
    rows = torch.randn(n, 100, generator=torch.Generator().manual_seed(n))
    columns = slice(0, 100)
    wanted: list[Selection | Nearest] = [Selection(n, range(f, n - f)) for f in range((n + 1) // 2)]
    wanted += [Selection(n, range(1, n))]
    wanted += [Nearest(n, count) for count in range(1, n + 1)]
    for selection in wanted:
        out = torch.empty(100)
        sums = bands.select_mean(target, tuple(rows), selection, columns, out)
        checked(rows, selection, columns, out, sums)


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.just(6), st.integers(1, 40)),
        elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
    )
)
@settings(max_examples=100, deadline=None)
def test_extreme_and_denormal_values_are_ordered_and_averaged_right(
    target: Host, matrix: np.ndarray
) -> None:
    rows = tuple(torch.from_numpy(matrix))
    out = torch.empty(matrix.shape[1])
    bands.select_mean(target, rows, Selection(6, range(2, 4)), slice(0, len(out)), out)
    exact = np.sort(matrix.astype(np.float64), axis=0)[2:4].mean(axis=0)
    assert np.array_equal(out.numpy(), exact.astype(np.float32))


def test_the_largest_floats_and_denormals_stay_in_place(target: Host) -> None:
    rows = torch.tensor([[-1e38, 1e-45], [1e38, 2e-45], [3.4e38, 0.0], [-3.4e38, -1e-45]])
    out = torch.empty(2)
    bands.select_mean(target, tuple(rows), Selection(4, range(1, 3)), slice(0, 2), out)
    assert out.tolist() == [0.0, torch.tensor(1e-45 / 2).item()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [5, 33, 70])
def test_half_precision_is_widened_exactly(target: Host, dtype: torch.dtype, n: int) -> None:
    if dtype not in target.elements:
        pytest.skip("this CPU does not widen float16 by itself")
    rows = torch.randn(n, 1001, generator=torch.Generator().manual_seed(n)).to(dtype)
    selection = Selection(n, range(1, n - 1))
    out = torch.empty(1001)
    sums = bands.select_mean(target, tuple(rows), selection, slice(0, 1001), out)
    checked(rows, selection, slice(0, 1001), out, sums)


@pytest.mark.parametrize("n", [9, 70])
def test_rows_with_gaps_between_values_and_rows_far_apart_are_read(target: Host, n: int) -> None:
    columns = torch.randn(1001, n, generator=torch.Generator().manual_seed(1))
    rows = columns.T
    selection = Selection(n, range(2, n - 2))
    out = torch.empty(1001)
    sums = bands.select_mean(target, tuple(rows), selection, slice(0, 1001), out)
    checked(rows, selection, slice(0, 1001), out, sums)
    apart = tuple(row.clone() for row in rows)
    other = torch.empty(1001)
    bands.select_mean(target, apart, selection, slice(0, 1001), other)
    assert torch.equal(out, other)


@pytest.mark.parametrize("n", [8, 66])
def test_any_number_of_threads_gives_the_same_bytes(target: Host, n: int) -> None:
    d = 40 * SPAN_COLUMNS // n + 77
    rows = tuple(torch.randn(n, d, generator=torch.Generator().manual_seed(2)))
    selection = Selection(n, range(2, n - 2))
    found = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            out = torch.empty(d)
            sums = bands.select_mean(target, rows, selection, slice(0, d), out)
            found.append((out.numpy().tobytes(), sums.distances.tobytes(), sums.lengths.tobytes()))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("n", [5, 68])
def test_rows_that_are_not_finite_are_told_by_their_lengths(target: Host, n: int) -> None:
    rows = torch.randn(n, 500, generator=torch.Generator().manual_seed(3))
    rows[1, 499] = torch.nan
    rows[3, 0] = torch.inf
    out = torch.empty(500)
    selection = Selection(n, range(1, n - 1))
    sums = bands.select_mean(target, tuple(rows), selection, slice(0, 500), out)
    assert np.isfinite(sums.lengths).tolist() == [i not in (1, 3) for i in range(n)]


@pytest.mark.parametrize("wide", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 9, 16, 33, 70])
def test_networks_of_numpy_equal_the_sort(n: int, wide: type) -> None:
    d = 2 * blocked_networks.BLOCK_COLUMNS_MIN + 5
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
    for band in (range(n // 4, n - n // 4), range((n - 1) // 2, n // 2 + 1)):
        selection = Selection(n, band)
        out = torch.empty(d)
        sums = blocked_networks.select_mean(tuple(rows), selection, slice(0, d), out, wide)
        checked(rows, selection, slice(0, d), out, sums)
