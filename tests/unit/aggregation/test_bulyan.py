import statistics

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import Bulyan, MultiBulyan

matrices = hnp.arrays(np.int8, st.tuples(st.integers(11, 13), st.integers(1, 4)))


def ranking(rows: np.ndarray, remaining: list[int], f: int) -> list[int]:
    neighbours = max(1, len(remaining) - f - 2)
    scores = {}
    for i in remaining:
        gaps = sorted(float(((rows[i] - rows[j]) ** 2).sum()) for j in remaining if j != i)
        scores[i] = sum(gaps[:neighbours])
    return sorted(remaining, key=lambda i: (scores[i], i))


def near_median(points: list[np.ndarray], keep: int) -> list[float]:
    found = []
    for column in zip(*points, strict=True):
        middle = statistics.median(column)
        nearest = sorted(range(len(column)), key=lambda i: (abs(column[i] - middle), i))[:keep]
        found.append(sum(column[i] for i in nearest) / keep)
    return found


def slow_bulyan(rows: np.ndarray, f: int) -> list[float]:
    remaining = list(range(len(rows)))
    chosen = []
    for _ in range(len(rows) - 2 * f):
        winner = ranking(rows, remaining, f)[0]
        chosen.append(winner)
        remaining.remove(winner)
    return near_median([rows[i] for i in sorted(chosen)], len(chosen) - 2 * f)


def slow_multi_bulyan(rows: np.ndarray, f: int) -> list[float]:
    remaining = list(range(len(rows)))
    points = []
    for _ in range(len(rows) - 2 * f - 2):
        order = ranking(rows, remaining, f)
        points.append(np.mean([rows[i] for i in order[: len(remaining) - f - 2]], axis=0))
        remaining.remove(order[0])
    return near_median(points, len(points) - 2 * f)


@given(matrix=matrices)
@settings(max_examples=40, deadline=None)
def test_bulyan_is_the_obvious_one(matrix: np.ndarray) -> None:
    rows = matrix.astype(np.float64)
    found = Bulyan(f=2)(torch.from_numpy(rows)).vector.tolist()
    assert found == pytest.approx(slow_bulyan(rows, 2), rel=1e-9, abs=1e-9)


@given(matrix=hnp.arrays(np.float64, (11, 3), elements=st.floats(-9, 9, width=16)))
@settings(max_examples=40, deadline=None)
def test_multi_bulyan_is_the_obvious_one(matrix: np.ndarray) -> None:
    # Distinct rows: sums in another order must not make or break a tie near the median.
    rows = matrix + np.random.default_rng(1).normal(size=matrix.shape)
    found = MultiBulyan(f=2)(torch.from_numpy(rows)).vector.tolist()
    assert found == pytest.approx(slow_multi_bulyan(rows, 2), rel=1e-9, abs=1e-9)


def test_report_says_when_a_row_was_chosen() -> None:
    rows = torch.randn(11, 20, generator=torch.Generator().manual_seed(1))
    rows[0] += 100
    rows[1] -= 100
    report = Bulyan(f=2)(rows).report
    assert [entry.reason for entry in report[:2]] == ["not among Krum's 7 choices"] * 2
    assert sum("Krum's choice" in entry.reason for entry in report) == 7
    assert [entry.weight for entry in report[:2]] == [0, 0]


def test_without_faults_bulyan_is_the_mean() -> None:
    rows = torch.randn(5, 20, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(Bulyan(f=0)(rows).vector, rows.mean(dim=0), atol=1e-6)
