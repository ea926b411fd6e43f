import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import NNM, Krum, Mean, TrimmedMean
from pliska.aggregation.points import Points
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting


def slow(rows: np.ndarray, f: int) -> np.ndarray:
    mixed = []
    for i, row in enumerate(rows):
        gaps = [((row - other) ** 2).sum() if j != i else -1 for j, other in enumerate(rows)]
        nearest = sorted(range(len(rows)), key=lambda j: (gaps[j], j))[: len(rows) - f]
        mixed.append(rows[nearest].mean(axis=0))
    return np.array(mixed)


@given(matrix=hnp.arrays(np.int8, st.tuples(st.integers(5, 9), st.integers(1, 4))))
@settings(max_examples=40, deadline=None)
def test_each_row_becomes_the_mean_of_its_nearest(matrix: np.ndarray) -> None:
    rows = matrix.astype(np.float64)
    points = Points.of(Rows(tuple(torch.from_numpy(rows)), rows.shape[1]), {})
    mixture = NNM().mix(points, Setting(f=2, workers=()))
    assert np.allclose(mixture.matrix.numpy() @ rows, slow(rows, 2))


@pytest.mark.parametrize("rule", [TrimmedMean, Krum])
def test_rule_after_mixing_is_the_rule_on_the_mixed_rows(rule: type[TrimmedMean]) -> None:
    rows = torch.randn(9, 40, generator=torch.Generator().manual_seed(1)).double()
    mixed = torch.from_numpy(slow(rows.numpy(), 2))
    assert torch.allclose((NNM(f=2) | rule(f=2))(rows).vector, rule(f=2)(mixed).vector)


def test_a_row_is_nearest_to_itself_even_beside_a_twin() -> None:
    rows = torch.tensor([[1.0], [1.0], [1.0], [9.0], [9.5]])
    points = Points.of(Rows(tuple(rows), 1), {})
    matrix = NNM().mix(points, Setting(f=2, workers=())).matrix
    assert bool((matrix.diagonal() > 0).all())


def test_mixed_rows_lie_closer_together() -> None:
    rows = torch.randn(11, 100, generator=torch.Generator().manual_seed(2))
    mixed = torch.from_numpy(slow(rows.double().numpy(), 3))
    assert float(mixed.var(dim=0).sum()) < 0.3 * float(rows.var(dim=0).sum())
    assert torch.isfinite((NNM() | Mean(f=3))(rows).vector).all()
