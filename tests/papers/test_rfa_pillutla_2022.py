"""Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE TSP
2022: a test per claim.
"""

import pytest
import torch

from pliska.aggregation import BoundError, GeometricMedian, Mean, VotingMass

SPLIT = [[0.0, 2.0], [0.0, 3.0], [0.0, 0.0], [2.0, 0.0], [3.0, 0.0]]


def test_breakdown_point_is_one_half() -> None:
    # Section 3: with less than half of the weight corrupted, the median stays bounded
    # by 2 / (1 - 2 f / n) times the honest radius (Lopuhaa and Rousseeuw, Theorem 2.2).
    generator = torch.Generator().manual_seed(1)
    for f in (1, 2, 4):
        honest = torch.nn.functional.normalize(torch.randn(9 - f, 20, generator=generator))
        lies = 1e30 * torch.randn(f, 20, generator=generator).sign()
        vector = GeometricMedian(f=f)(torch.vstack([lies, honest])).vector
        assert float(vector.norm()) <= 2 / (1 - 2 * f / 9)
    with pytest.raises(BoundError):
        GeometricMedian(f=5).check(10)


def test_weights_are_those_of_the_objective() -> None:
    # Equation (7): argmin of the sum of w_i |v - x_i|. A row with half of the mass wins.
    rows = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0], [5.0, 5.0]])
    heavy = VotingMass({"0": 3.0, "1": 1.0, "2": 1.0, "3": 1.0})
    assert torch.equal(GeometricMedian(f=0)(rows, masses=heavy).vector, rows[0])


def test_workers_of_equal_mass_are_all_counted() -> None:
    # FedML collects the weights in a set, which leaves two of 10, 10, 10, 20, and then two rows.
    rows = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    masses = VotingMass({"0": 10.0, "1": 10.0, "2": 10.0, "3": 20.0})
    assert GeometricMedian(f=0)(rows, masses=masses).vector.item() == 2


def test_distance_is_that_of_whole_rows_and_not_of_layers() -> None:
    # FedML takes a median in each layer. Layer by layer the answer would be (0, 0).
    states = [{"a": torch.tensor([a]), "b": torch.tensor([b])} for a, b in SPLIT]
    whole = GeometricMedian(f=1)(torch.tensor(SPLIT)).vector
    found = GeometricMedian(f=1)(states).state_dict
    assert torch.equal(torch.cat([found["a"], found["b"]]), whole)
    assert float(whole.norm()) > 0.1


def test_three_smoothed_steps_would_not_do() -> None:
    # Algorithm 2 stops at a tolerance; three steps from zero leave 984.6 here.
    honest = 1000.3 + 0.1 * torch.linspace(-1, 1, 9)
    rows = torch.cat([honest, torch.tensor([-1e6, -1e6])])[:, None]
    assert GeometricMedian(f=2)(rows).vector.item() == pytest.approx(1000.3, abs=0.1)


def test_short_rows_are_no_plain_mean() -> None:
    # Section 3: the floor nu must be small against the distances. With nu = 0.1 honest
    # rows of 1e-4 and two of ten at 0.09 give the mean, 178 times too long.
    generator = torch.Generator().manual_seed(2)
    honest = 1e-4 * torch.nn.functional.normalize(torch.randn(8, 20, generator=generator))
    lies = torch.full((2, 20), 0.09 / 20**0.5)
    rows = torch.vstack([honest, lies])
    assert float(GeometricMedian(f=2)(rows).vector.norm()) < 2e-4
    assert float(Mean()(rows).vector.norm()) > 1e-2
