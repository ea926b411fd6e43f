import itertools
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import MDA, SearchLimitError
from pliska.aggregation.mda import FAULTS_MAX, tightest


def slow(rows: np.ndarray, m: int) -> tuple[int, ...]:
    def diameter(points: tuple[int, ...]) -> float:
        return max(
            (float(((rows[i] - rows[j]) ** 2).sum()) for i, j in itertools.combinations(points, 2)),
            default=0.0,
        )

    return min(itertools.combinations(range(len(rows)), m), key=diameter)


@given(matrix=hnp.arrays(np.int8, st.tuples(st.integers(5, 9), st.integers(1, 3))))
@settings(max_examples=60, deadline=None)
def test_the_tightest_subset_is_that_of_the_listing(matrix: np.ndarray) -> None:
    # Small integers make many ties: of equal subsets the first is taken.
    rows = matrix.astype(np.float64)
    chosen = slow(rows, len(rows) - 2)
    report = MDA(f=2)(torch.from_numpy(rows)).report
    assert tuple(int(entry.worker) for entry in report if entry.weight) == chosen


@pytest.mark.parametrize(("n", "f"), [(30, 10), (64, 20)])
def test_many_rows_are_searched_and_not_listed(n: int, f: int) -> None:
    # C(30, 10) is 30 million, C(64, 20) is 2e16.
    rows = torch.randn(n, 100, generator=torch.Generator().manual_seed(1))
    rows[:f] += 0.5
    begun = time.process_time()
    chosen = MDA(f=f)(rows)
    assert time.process_time() - begun < 5
    assert sum(entry.weight > 0 for entry in chosen.report) == n - f


def test_margin_is_positive_within_the_diameter() -> None:
    distances = torch.tensor([[0.0, 1, 81], [1, 0, 64], [81, 64, 0]]).double()
    assert tightest(distances, 2) == [0, 1]
    report = MDA(f=1)(torch.tensor([[0.0], [1.0], [9.0]])).report
    assert [entry.margin for entry in report] == [0, 0, 1 - 9]


def test_more_faults_than_can_be_searched_out_are_refused_before_any_row_is_there() -> None:
    MDA(f=FAULTS_MAX).check(100)
    with pytest.raises(SearchLimitError, match="n=100 searches out at most 32 rows, not f=33"):
        MDA(f=FAULTS_MAX + 1).check(100)
    with pytest.raises(SearchLimitError, match="f=49"):
        MDA(f="auto").check(100)
