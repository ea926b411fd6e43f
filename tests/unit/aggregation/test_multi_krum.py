import pytest
import torch

from pliska.aggregation import Mean, MultiKrum, ParameterError


def test_only_the_chosen_rows_make_the_mean() -> None:
    rows = torch.randn(9, 64, generator=torch.Generator().manual_seed(1))
    rows[:2] += 50
    result = MultiKrum(f=2)(rows)
    chosen = [i for i, entry in enumerate(result.report) if entry.weight]
    assert len(chosen) == 5
    assert torch.allclose(result.vector, Mean()(rows[chosen]).vector)
    assert not {0, 1} & set(chosen)


def test_default_m_is_the_same_whether_bad_rows_are_refused_or_outvoted() -> None:
    # n - f - 2 stays: a refused row lowers n and f alike.
    rows = torch.randn(9, 64, generator=torch.Generator().manual_seed(2))
    rows[0] = torch.nan
    report = MultiKrum(f=2)(rows).report
    assert sum(entry.weight > 0 for entry in report) == 5


def test_no_worker_sets_its_own_weight() -> None:
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))
    assert {entry.weight for entry in MultiKrum(f=1, m=4)(rows).report} == {0.0, 0.25}


@pytest.mark.parametrize("m", [0, -1, 2.0, True])
def test_m_is_a_whole_number_of_at_least_one(m: object) -> None:
    with pytest.raises(ParameterError, match="m must be a whole number of at least 1"):
        MultiKrum(f=1, m=m)  # type: ignore[arg-type]


def test_n_that_is_too_small_for_m_is_named() -> None:
    assert MultiKrum(f=1, m=6).rows_min == 7
    assert MultiKrum(f=2, m=6, variant="kappa").rows_min == 8
    assert MultiKrum(f=2).rows_min == 7
