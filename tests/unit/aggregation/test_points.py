import pytest
import torch

from pliska.aggregation.order_statistics import BandMean, band_mean
from pliska.aggregation.points import ORIGIN, Choice, Mixture, Points, mean_of, shares
from pliska.aggregation.rows import Rows

ROWS = torch.randn(5, 40, generator=torch.Generator().manual_seed(1))
PAIRS = torch.tensor([[0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 1]]).double()
PLACES = [0, 0, 1, 1, 2]


def points_of(measured: int = 40, **landmarks: torch.Tensor) -> Points:
    return Points.of(Rows(tuple(ROWS), measured), landmarks)


def choice(weights: list[float]) -> Choice:
    return Choice(weights, [float(i) for i in range(len(weights))], [f"{w}" for w in weights])


def test_weights_of_mixed_points_are_carried_back_to_the_rows() -> None:
    made = points_of().mixed(Mixture(PAIRS, PLACES)).combine(choice([0.5, 0.5, 0]))
    assert made.standing().weights.tolist() == pytest.approx([0.25, 0.25, 0.25, 0.25, 0])
    assert torch.allclose(made.vector, ROWS[:4].mean(dim=0))
    assert made.reasons() == ["0.5", "0.5", "0.5", "0.5", "0"]
    assert made.standing().margins.tolist() == [0, 0, 1, 1, 2]
    expected = (ROWS - ROWS[:4].mean(dim=0)).square().sum(dim=1).tolist()
    assert made.standing().distances.tolist() == pytest.approx(expected, rel=1e-5)


def test_mixtures_follow_each_other() -> None:
    first = points_of().mixed(Mixture(PAIRS, PLACES))
    second = first.mixed(Mixture(torch.tensor([[0.5, 0.5, 0.0]]).double(), [0, 0, 0]))
    assert second.n == 1
    made = second.combine(choice([1.0]))
    assert torch.allclose(made.vector, ROWS[:4].mean(dim=0))
    assert made.reasons() == ["1.0"] * 5


def test_rows_may_be_drawn_towards_the_origin() -> None:
    points = points_of(**{ORIGIN: torch.zeros(40)})
    halved = torch.tensor([[0.5, 0, 0, 0, 0, 0.5]]).double()
    made = points.mixed(Mixture(halved, [0] * 5)).combine(choice([1.0]))
    assert torch.allclose(made.vector, ROWS[0] / 2)
    assert made.standing().weights.tolist() == [1, 0, 0, 0, 0]


def test_landmark_with_weight_is_part_of_the_sum() -> None:
    start = torch.full((40,), 3.0)
    made = points_of(last=start).combine(choice([0.25, 0, 0, 0, 0, 0.75]))
    assert torch.allclose(made.vector, ROWS[0] / 4 + 0.75 * 3)
    assert made.standing().weights.tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("measured", [40, 25, 0])
def test_reduction_of_mixed_points_is_that_of_the_matrix(
    measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pliska.aggregation.rows.BLOCK_ELEMENTS", 35)
    median = range(1, 2)
    mixed = points_of(measured).mixed(Mixture(PAIRS, PLACES))
    made = mixed.reduce(lambda rows: band_mean(rows, median))
    expected = (PAIRS @ ROWS.double()).float().median(dim=0).values
    assert torch.allclose(made.vector, expected)
    gaps = (ROWS - expected)[:, :measured].square().sum(dim=1)
    assert made.distances.tolist() == pytest.approx(gaps.tolist(), rel=1e-5, abs=1e-9)
    assert sum(made.kept) == pytest.approx(40)


def test_picked_rows_are_exactly_themselves() -> None:
    huge = ROWS.clone()
    huge[0] = 1e38
    picked = torch.eye(5, dtype=torch.float64)[[1, 3]]
    points = Points.of(Rows(tuple(huge), 40), {}).mixed(Mixture(picked, [0] * 5))
    seen: list[torch.Tensor] = []

    def look(rows: Rows) -> BandMean:
        seen.append(torch.stack(rows.tensors))
        return band_mean(rows, range(2))

    points.reduce(look)
    assert torch.equal(seen[0], huge[[1, 3]])


def test_columns_are_those_of_the_points() -> None:
    positions = torch.tensor([3, 17])
    assert torch.equal(points_of().columns(positions), ROWS[:, positions].double())
    mixed = points_of().mixed(Mixture(PAIRS, PLACES)).columns(positions)
    assert torch.allclose(mixed, PAIRS @ ROWS[:, positions].double())


def test_shares_of_nothing_are_zero() -> None:
    assert shares(torch.zeros(3)).tolist() == [0, 0, 0]
    assert shares(torch.tensor([1.0, 3.0])).tolist() == [0.25, 0.75]
    assert mean_of([0, 2], 4) == [0.5, 0, 0.5, 0]
