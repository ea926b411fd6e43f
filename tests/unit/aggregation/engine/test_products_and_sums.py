import tracemalloc

import numpy as np
import pytest
import torch

from pliska.aggregation.engine import blocks, grams, sums
from pliska.aggregation.engine.compiler import Host
from pliska.aggregation.engine.threads import SPAN_COLUMNS

D = 3001
COLUMNS = slice(5, 3000)


def matrix(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(n)).to(dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 13, 16, 17, 33, 64, 100])
@pytest.mark.parametrize("is_centred", [False, True])
def test_products_equal_those_in_float64(target: Host, n: int, is_centred: bool) -> None:
    rows = matrix(n)
    centre = rows[n // 2] if is_centred else None
    exact = rows.double() - (0 if centre is None else centre.double())
    gram = (exact[:, COLUMNS] @ exact[:, COLUMNS].T).numpy()
    lengths = rows.double()[:, COLUMNS].square().sum(dim=1)
    for fresh in {1, (n + 1) // 2, n}:
        found = grams.products(target, tuple(rows), fresh, COLUMNS, centre)
        assert np.allclose(found.gram, gram[:fresh], atol=1e-6 * D)
        assert np.allclose(found.lengths, lengths, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rows_are_multiplied_as_float32(target: Host, dtype: torch.dtype) -> None:
    if dtype not in target.elements:
        pytest.skip("this CPU does not widen float16 by itself")
    rows = matrix(6, dtype)
    exact = rows.double()[:, COLUMNS]
    found = grams.products(target, tuple(rows), 6, COLUMNS, None)
    assert np.allclose(found.gram, exact @ exact.T, atol=1e-6 * D)


def test_whole_matrix_is_symmetric_to_the_bit_and_follows_the_rows(target: Host) -> None:
    rows = matrix(11)
    order = torch.tensor([3, 9, 0, 10, 1, 7, 8, 2, 6, 4, 5])
    found = grams.products(target, tuple(rows), 11, COLUMNS, None).gram
    moved = grams.products(target, tuple(rows[order]), 11, COLUMNS, None).gram
    assert (found == found.T).all()
    assert (moved == found[order][:, order]).all()


def test_sums_of_many_columns_are_kept_for_few_of_them_at_once(target: Host, monkeypatch) -> None:
    n, d = 150, 20 * SPAN_COLUMNS
    numbers = torch.randn(d + 64 * n, generator=torch.Generator().manual_seed(3))
    rows = tuple(numbers[64 * i : 64 * i + d] for i in range(n))

    def found() -> tuple[bytes, int]:
        tracemalloc.start()
        products = grams.products(target, rows, n, slice(0, d - 3), None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return products.gram.tobytes() + products.lengths.tobytes(), peak

    found()  # what is made once
    monkeypatch.setattr(blocks, "SUMS_BYTES_MAX", 1 << 30)
    all_at_once, much = found()
    monkeypatch.setattr(blocks, "SUMS_BYTES_MAX", 1)
    few_at_once, little = found()
    assert few_at_once == all_at_once
    assert little < much / 3


def test_no_columns_make_no_products(target: Host) -> None:
    found = grams.products(target, tuple(matrix(3)), 3, slice(7, 7), None)
    assert not found.gram.any()
    assert not found.lengths.any()


def test_error_of_large_rows_is_far_below_float32(target: Host) -> None:
    d = 4 * SPAN_COLUMNS
    rows = torch.randn(4, d, generator=torch.Generator().manual_seed(1))
    exact = (rows.double() @ rows.double().T).numpy()
    found = grams.products(target, tuple(rows), 4, slice(0, d), None).gram
    assert abs(found - exact).max() < 1e-8 * exact.max()


@pytest.mark.parametrize("n", [1, 3, 4, 7, 64, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weighted_sum_equals_that_in_float64(target: Host, n: int, dtype: torch.dtype) -> None:
    rows = matrix(n, dtype)
    weights = torch.randn(n, generator=torch.Generator().manual_seed(2)).double()
    out = torch.empty(D)
    sums.weighted_sum(target, tuple(rows), weights.tolist(), out)
    assert torch.allclose(out, (weights @ rows.double()).float(), rtol=1e-6, atol=1e-6)


def test_weighted_sum_of_one_row_is_that_row(target: Host) -> None:
    row = matrix(1)[0] * 1e30
    out = torch.empty(D)
    sums.weighted_sum(target, (row,), [1.0], out)
    assert torch.equal(out, row)


def test_weighted_sum_does_not_overflow_on_the_way(target: Host) -> None:
    rows = tuple(torch.full((20,), value) for value in (3e38, 3e38, -3e38))
    out = torch.empty(20)
    sums.weighted_sum(target, rows, [1.0, 1.0, 1.5], out)
    assert out.tolist() == pytest.approx([1.5e38] * 20)
