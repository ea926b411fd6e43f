import torch

from pliska.aggregation import SignVote


def test_votes_are_counted_and_a_tie_is_zero() -> None:
    rows = torch.tensor([[1.0, -2, 0, 5], [3, -4, 0, -5], [-5, -6, 1, 0]])
    result = SignVote(f=1)(rows)
    assert result.vector.tolist() == [1, -1, 1, 0]
    assert result.report[2].reason == "within the kept range in 75% of the coordinates"


def test_length_buys_no_votes() -> None:
    rows = torch.ones(5, 8)
    rows[:2] = -1e38
    assert SignVote(f=2)(rows).vector.tolist() == [1] * 8
