"""Means without compilation, by networks and by sorts, against a sort in float64."""

import tracemalloc

import numpy as np
import pytest
import torch

from pliska.aggregation.engine.blocked_networks import (
    BLOCK_COLUMNS_MIN,
    NETWORK_ROWS_MAX,
    SORTED_TOGETHER,
    SUMMED_COLUMNS,
    select_mean,
)
from pliska.aggregation.engine.networks import Selection


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "n", [1, 2, NETWORK_ROWS_MAX, NETWORK_ROWS_MAX + 1, SORTED_TOGETHER, 64, 300]
)
@pytest.mark.parametrize("width", [1, SUMMED_COLUMNS, SUMMED_COLUMNS + 1, BLOCK_COLUMNS_MIN + 900])
def test_band_means_are_those_of_a_sort_however_many_rows(
    n: int, width: int, dtype: torch.dtype
) -> None:
    rows = torch.randn(n, width + 3, generator=torch.Generator().manual_seed(n)).to(dtype)
    rows[:, width // 2] = rows[0, width // 2]  # ties
    f = (n - 1) // 3
    out = torch.full((width + 3,), 9.0, dtype=dtype)
    columns = slice(2, width + 2)
    sums = select_mean(tuple(rows), Selection(n, range(f, n - f)), columns, out, np.float64)
    part = rows[:, columns].double()
    band = part.sort(dim=0).values[f : n - f]
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    assert torch.allclose(out[columns].double(), band.mean(dim=0), rtol=tolerance, atol=tolerance)
    assert out[[0, 1, -1]].tolist() == [9.0, 9.0, 9.0]
    inside = (part >= band[0]) & (part <= band[-1])
    assert sums.kept.tolist() == inside.sum(dim=1).tolist()
    gaps = (part - out[columns].double()).square().sum(dim=1)
    assert torch.allclose(torch.from_numpy(np.asarray(sums.distances)), gaps)


def test_rows_apart_in_memory_give_the_same_bytes() -> None:
    rows = torch.randn(80, 3000, generator=torch.Generator().manual_seed(3))
    selection, columns = Selection(80, range(20, 60)), slice(0, 3000)
    outs = [torch.empty(3000) for _ in range(2)]
    select_mean(tuple(rows), selection, columns, outs[0], np.float32)
    select_mean([row.clone() for row in rows], selection, columns, outs[1], np.float32)
    assert torch.equal(*outs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_that_lie_apart_are_taken_in_their_own_dtype(dtype: torch.dtype) -> None:
    rows = [torch.randn(5_000).to(dtype) for _ in range(300)]
    out = torch.empty(5_000)
    select_mean(rows, Selection(300, range(60, 240)), slice(0, 5_000), out, np.float64)
    ordered = torch.stack(rows).float().sort(dim=0).values
    assert torch.allclose(out, ordered[60:240].mean(dim=0), atol=1e-6)


def test_blocks_of_many_rows_take_no_more_memory_than_those_of_few() -> None:
    def peak_bytes(n: int) -> int:
        rows = [torch.randn(10_000) for _ in range(n)]
        out = torch.empty(10_000)
        tracemalloc.start()
        select_mean(
            rows, Selection(n, range(n // 4, 3 * n // 4)), slice(0, 10_000), out, np.float64
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(1_000) < 1.3 * peak_bytes(256)
