import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from pliska.aggregation import SMEA, Bucketing, SearchLimitError


def top(rows: np.ndarray) -> float:
    centred = rows - rows.mean(axis=0)
    return float(np.linalg.eigvalsh(centred.T @ centred)[-1])


@given(matrix=hnp.arrays(np.int8, (7, 3)))
@settings(max_examples=40, deadline=None)
def test_the_subset_spreads_no_more_than_any_other(matrix: np.ndarray) -> None:
    rows = matrix.astype(np.float64)
    least = min(top(rows[list(subset)]) for subset in itertools.combinations(range(7), 5))
    report = SMEA(f=2)(torch.from_numpy(rows)).report
    chosen = [i for i, entry in enumerate(report) if entry.weight]
    assert top(rows[chosen]) <= least * (1 + 1e-6) + 1e-6


def test_twenty_calls_give_one_answer() -> None:
    # ByzFL's single power step from an unseeded vector gives 15 of them.
    rows = torch.randn(10, 40, generator=torch.Generator().manual_seed(1))
    assert len({SMEA(f=3)(rows).vector.numpy().tobytes() for _ in range(20)}) == 1


def test_a_search_that_would_take_too_long_is_refused_before_any_row_is_there() -> None:
    with pytest.raises(SearchLimitError, match="n=30 and f=10 would try 30045015 subsets of 20"):
        SMEA(f=10).check(30)
    with pytest.raises(SearchLimitError, match="lower f"):
        SMEA(f="auto").check(22)
    SMEA(f="auto").check(21)
    SMEA(f=5).check(16)
    # Few subsets, but large ones.
    with pytest.raises(SearchLimitError, match="31125 subsets of 248"):
        SMEA(f=2).check(250)


def test_the_subsets_are_those_of_the_points_and_not_of_the_rows() -> None:
    with pytest.raises(SearchLimitError):
        SMEA(f=4).check(40)
    (Bucketing(s=2) | SMEA(f=6)).check(40)


@pytest.mark.parametrize("refused", range(5))
def test_what_check_admits_is_searched_whatever_is_refused(refused: int) -> None:
    rule = SMEA(f=4)
    rule.check(18)
    rejected = {f"late {i}": "too late" for i in range(refused)}
    rows = torch.randn(18 - refused, 4, generator=torch.Generator().manual_seed(3))
    kept = [entry for entry in rule(rows, rejected=rejected).report if entry.weight]
    assert len(kept) == 14


def test_first_of_equal_subsets_is_taken() -> None:
    rows = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]])
    assert SMEA(f=2)(rows).vector.item() == 1
