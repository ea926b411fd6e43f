"""Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE TSP
2022: a test per claim.
"""

import pytest
import torch

from pliska.aggregation import BoundError, GeometricMedian, Mean, VotingMass


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
