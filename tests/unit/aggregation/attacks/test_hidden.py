import itertools

import pytest
import torch

from pliska.aggregation import ParameterError, attack_named


def honest_rows(h: int = 7, d: int = 40, seed: int = 1) -> torch.Tensor:
    return 1 + torch.randn(h, d, generator=torch.Generator().manual_seed(seed)).double()


def forged(name: str, honest: torch.Tensor, **parameters: object) -> torch.Tensor:
    return attack_named(name, **parameters)(honest, 1, torch.Generator())[0]


@pytest.mark.parametrize("direction", ["std", "sign", "unit"])
@pytest.mark.parametrize("seed", range(4))
def test_min_max_goes_as_far_as_two_honest_rows_are_apart(direction: str, seed: int) -> None:
    honest = honest_rows(seed=seed)
    widest = max(float((x - y).norm()) for x, y in itertools.combinations(honest, 2))
    row = forged("min-max", honest, direction=direction)
    assert float((honest - row).norm(dim=1).max()) == pytest.approx(widest)
    mean = honest.mean(dim=0)
    further = mean + 1.001 * (row - mean)
    assert float((honest - further).norm(dim=1).max()) > widest


@pytest.mark.parametrize("direction", ["std", "sign", "unit"])
@pytest.mark.parametrize("seed", range(4))
def test_min_sum_goes_as_far_as_the_farthest_honest_row(direction: str, seed: int) -> None:
    honest = honest_rows(seed=seed)
    sums = [float((honest - row).square().sum()) for row in honest]
    row = forged("min-sum", honest, direction=direction)
    assert float((honest - row).square().sum()) == pytest.approx(max(sums))


def test_directions_are_against_the_mean() -> None:
    honest = honest_rows()
    mean = honest.mean(dim=0)
    for direction, along in (
        ("std", -honest.std(dim=0)),
        ("sign", -mean.sign()),
        ("unit", -mean),
    ):
        step = forged("min-max", honest, direction=direction) - mean
        assert float(torch.cosine_similarity(step, along, dim=0)) == pytest.approx(1)
    with pytest.raises(ParameterError, match='direction must be "std"'):
        forged("min-max", honest, direction="up")


def test_mimic_copies_the_row_farthest_out_in_the_direction_of_largest_spread() -> None:
    honest = honest_rows()
    honest[4, 7] += 50
    assert torch.equal(forged("mimic", honest), honest[4])


def test_equal_rows_leave_nowhere_to_hide() -> None:
    honest = torch.ones(5, 3)
    for name in ("min-max", "min-sum", "alie", "mimic"):
        assert torch.equal(forged(name, honest), honest[0])
