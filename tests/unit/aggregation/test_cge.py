import torch

from pliska.aggregation import CGE


def test_the_f_longest_are_dropped_and_of_equals_the_later() -> None:
    rows = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 5.0], [0.0, 2.0]])
    result = CGE(f=1)(rows)
    assert [entry.weight > 0 for entry in result.report] == [True, True, False, True]
    assert torch.allclose(result.vector, rows[[0, 1, 3]].mean(dim=0))
    assert result.report[0].reason == "length 5; the shortest 3 are kept"


def test_a_lie_no_longer_than_the_honest_is_not_found() -> None:
    # What the rule cannot do: a sign flip has the honest length.
    rows = torch.ones(5, 4)
    rows[4] = -1
    assert CGE(f=1)(rows).vector.tolist() == [1, 1, 1, 1]  # a tie: the later one is dropped
    rows[4] *= 0.9
    assert CGE(f=1)(rows).report[4].weight > 0
