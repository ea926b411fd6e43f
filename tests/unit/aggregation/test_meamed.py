import torch

from pliska.aggregation import MeaMed, Mean


def test_ties_go_to_the_earlier_worker_whatever_the_order_of_arrival() -> None:
    rows = torch.tensor([[4.0], [0.0], [2.0], [9.0], [1.0]])
    assert MeaMed(f=2)(rows, list("abcde")).vector.item() == torch.tensor(7 / 3)
    assert MeaMed(f=2)(rows, list("badce")).vector.item() == 1.0


def test_without_faults_it_is_the_mean() -> None:
    rows = torch.randn(6, 30, generator=torch.Generator().manual_seed(1))
    assert torch.equal(MeaMed(f=0)(rows).vector, Mean()(rows).vector)
