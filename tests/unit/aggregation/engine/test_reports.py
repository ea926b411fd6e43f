import numpy as np
import pytest
import torch

from pliska.aggregation.engine import reports
from pliska.aggregation.engine.compiler import Host
from pliska.aggregation.engine.statistics import EXACT_COLUMNS, squared_lengths
from pliska.aggregation.engine.threads import SPAN_COLUMNS


@pytest.mark.parametrize("n", [1, 5, 19])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lengths_and_distances_are_those_in_float64(
    target: Host, n: int, dtype: torch.dtype
) -> None:
    d = SPAN_COLUMNS + 21
    rows = torch.randn(n, d, generator=torch.Generator().manual_seed(n)).to(dtype)
    vector = torch.randn(d, generator=torch.Generator().manual_seed(9))
    columns = slice(5, d)
    part = rows.double()[:, columns]
    lengths = reports.lengths(target, tuple(rows), columns)
    assert np.allclose(lengths, part.square().sum(dim=1), rtol=1e-6)
    distances = reports.distances(target, tuple(rows), columns, vector)
    gaps = part - vector[columns].double()
    assert np.allclose(distances, gaps.square().sum(dim=1), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_lengths_of_large_rows_hold_at_every_scale(scale: float) -> None:
    rows = torch.randn(3, EXACT_COLUMNS, generator=torch.Generator().manual_seed(1)) * scale
    exact = rows.double().square().sum(dim=1)
    assert torch.allclose(squared_lengths(tuple(rows), slice(0, EXACT_COLUMNS)), exact, rtol=1e-6)


def test_a_row_that_is_not_finite_has_no_finite_length() -> None:
    rows = torch.zeros(3, EXACT_COLUMNS)
    rows[1, -1] = torch.nan
    rows[2, 0] = torch.inf
    lengths = squared_lengths(tuple(rows), slice(0, EXACT_COLUMNS))
    assert lengths.isfinite().tolist() == [True, False, False]
