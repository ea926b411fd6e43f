import pytest
import torch

from pliska.aggregation import BoundError, Bucketing, Krum, Mean, ParameterError, TrimmedMean
from pliska.aggregation.points import Points
from pliska.aggregation.rows import Rows
from pliska.aggregation.setting import Setting


def matrix_of(n: int, s: int, seed: int = 0) -> torch.Tensor:
    points = Points.of(Rows(tuple(torch.zeros(n, 1)), 1), {})
    return Bucketing(s=s).mix(points, Setting(f=1, workers=(), seed=seed)).matrix


@pytest.mark.parametrize(("n", "s"), [(10, 2), (11, 2), (10, 4), (7, 1), (3, 5)])
def test_every_row_is_in_exactly_one_bucket(n: int, s: int) -> None:
    # random.shuffle of a matrix duplicates rows: FLPoison does so with every seed.
    for seed in range(20):
        matrix = matrix_of(n, s, seed)
        assert len(matrix) == -(-n // s)
        assert torch.equal((matrix > 0).sum(dim=0), torch.ones(n, dtype=torch.int64))
        assert torch.allclose(matrix.sum(dim=1), torch.ones(1).double())
        assert int((matrix > 0).sum(dim=1).max()) == min(n, s)


def test_lots_are_drawn_from_the_seed_alone() -> None:
    state = torch.get_rng_state()
    assert torch.equal(matrix_of(10, 2, 5), matrix_of(10, 2, 5))
    assert not torch.equal(matrix_of(10, 2, 5), matrix_of(10, 2, 6))
    assert torch.equal(torch.get_rng_state(), state)


def test_rule_must_bear_the_same_f_among_fewer_points() -> None:
    # ByzFL with n=10, s=4, f=3 fails inside the rule; here it is known before.
    with pytest.raises(BoundError, match=r"bucketing \| trimmed-mean with f=3"):
        (Bucketing(s=4) | TrimmedMean(f=3)).check(10)
    assert (Bucketing(s=4) | TrimmedMean(f=3)).rows_min == 25
    assert (Bucketing(s=2) | Krum(f=2)).rows_min == 13
    (Bucketing(s=2) | Krum(f=2)).check(13)


def test_report_names_each_workers_bucket() -> None:
    rows = torch.randn(13, 20, generator=torch.Generator().manual_seed(1))
    report = (Bucketing(s=2) | Krum(f=2))(rows, seed=3).report
    kept = [entry for entry in report if entry.weight]
    assert 1 <= len(kept) <= 2
    assert {entry.reason for entry in kept} == {kept[0].reason}


def test_buckets_of_one_change_nothing() -> None:
    rows = torch.randn(8, 20, generator=torch.Generator().manual_seed(2))
    found = (Bucketing(s=1) | Mean())(rows, seed=9).vector
    assert torch.allclose(found, rows.mean(dim=0), atol=1e-6)


@pytest.mark.parametrize("s", [0, -1, 2.0, "2"])
def test_s_is_a_whole_number(s: object) -> None:
    with pytest.raises(ParameterError, match="s must be a whole number of at least 1"):
        Bucketing(s=s)  # type: ignore[arg-type]
