import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pliska.aggregation import BoundError, Krum, ParameterError, Verdict
from pliska.aggregation.krum import keep_best, krum_scores


def slow_scores(matrix: np.ndarray, f: int, neighbours: int) -> list[float]:
    exact = matrix.astype(np.float64)
    scores = []
    for i, row in enumerate(exact):
        others = sorted(((row - other) ** 2).sum() for j, other in enumerate(exact) if j != i)
        scores.append(sum(others[:neighbours]))
    return scores


@given(
    matrix=hnp.arrays(np.int8, st.tuples(st.integers(7, 12), st.integers(1, 6))),
    variant=st.sampled_from(["blanchard", "kappa"]),
)
@settings(max_examples=100, deadline=None)
def test_krum_chooses_what_the_obvious_version_chooses(matrix: np.ndarray, variant: str) -> None:
    # Small integers make many ties, and every sum exact.
    n, f = len(matrix), 2
    neighbours = n - f - 2 if variant == "blanchard" else n - f - 1
    scores = slow_scores(matrix, f, neighbours)
    rows = torch.from_numpy(matrix.astype(np.float32))
    result = Krum(f=f, variant=variant)(rows)  # type: ignore[arg-type]
    assert torch.equal(result.vector, rows[scores.index(min(scores))])


def test_margin_is_positive_for_the_kept_and_negative_for_the_others() -> None:
    rows = torch.tensor([[4.0], [11], [12], [17], [20], [24], [26]])
    report = Krum(f=2)(rows).report
    # Scores 61 (20) and 69 (24): the border is 65.
    assert report[4].margin == pytest.approx(1 - 61 / 65)
    assert report[5].margin == pytest.approx(1 - 69 / 65)
    assert [entry.verdict for entry in report].count(Verdict.KEPT) == 1
    assert report[4].reason == "Krum score 61, rank 1 of 7; the best 1 are kept"


def test_first_of_equals_is_kept() -> None:
    choice = keep_best([3.0, 1.0, 1.0, 1.0], 2)
    assert choice.weights == [0.0, 0.5, 0.5, 0.0]


def test_all_rows_equal_has_no_margin() -> None:
    assert keep_best([0.0, 0.0, 0.0], 1).margins == [0, 0, 0]


def test_huge_distances_keep_their_order() -> None:
    distances = torch.tensor(
        [[0, 1, 1e300, 4], [1, 0, 1e300, 9], [1e300, 1e300, 0, 1e300], [4, 9, 1e300, 0]],
        dtype=torch.float64,
    )
    assert krum_scores(distances, 0, "blanchard") == [5.0, 10.0, 2e300, 13.0]


@pytest.mark.parametrize(("f", "least"), [(0, 2), (1, 3), (2, 5)])
def test_kappa_variant_needs_only_a_majority(f: int, least: int) -> None:
    Krum(f=f, variant="kappa").check(least)
    with pytest.raises(BoundError, match=r"n >= 2f \+ 1"):
        Krum(f=f, variant="kappa").check(least - 1)


def test_unknown_variant_is_refused() -> None:
    with pytest.raises(ParameterError, match="'blanchard' or 'kappa', not 'garfield'"):
        Krum(f=1, variant="garfield")  # type: ignore[arg-type]


@pytest.mark.parametrize("f", [-1, 1.5, "2", None, True])
def test_f_is_a_whole_number(f: object) -> None:
    with pytest.raises(ParameterError, match="f must be a whole number"):
        Krum(f=f)  # type: ignore[arg-type]
