import torch

from pliska.aggregation import Mean


def test_mean_is_summed_in_float64() -> None:
    # In float32 the ones vanish beside 1e8.
    rows = torch.tensor([[1e8], *[[1.0]] * 7, [-1e8]])
    assert Mean()(rows).vector.item() == torch.tensor(7 / 9).item()


def test_one_row_is_its_own_mean() -> None:
    row = torch.randn(1, 20, generator=torch.Generator().manual_seed(1))
    assert torch.equal(Mean()(row).vector, row[0])


def test_f_counts_refused_rows_only() -> None:
    rows = torch.ones(4, 3)
    rows[1, 1] = torch.inf
    assert torch.equal(Mean(f=1)(rows).vector, torch.ones(3))
    assert Mean().f == 0
