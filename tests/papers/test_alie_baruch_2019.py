"""Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for
distributed learning", NeurIPS 2019: a test per claim.
"""

import pytest
import torch

from pliska.aggregation import Krum, MultiKrum, attack_named
from pliska.aggregation.attacks import alie_z


def honest_rows(n: int, d: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.05 + torch.randn(n, d, generator=generator)


def test_alie_z_is_the_papers() -> None:
    # Section 3.1: n=50 with 24 corrupted needs 2 supporters of 26, so Phi^-1(24/26).
    assert alie_z(50, 24) == pytest.approx(1.4261, abs=1e-4)


def test_alie_moves_every_coordinate_by_z_deviations() -> None:
    # Algorithm 3, line 4: mean - z * deviation.
    honest = honest_rows(6, 40, seed=1)
    forged = attack_named("alie", z=1.5)(honest, 2, torch.Generator())
    assert torch.equal(forged[0], honest.mean(dim=0) - 1.5 * honest.std(dim=0))
    assert torch.equal(forged[0], forged[1])


def test_alie_is_kept_by_krum_and_multi_krum() -> None:
    # Section 4: the forged rows are nearer to the honest ones than those to each
    # other, so distance rules choose them.
    honest = honest_rows(8, 2000, seed=2)
    forged = attack_named("alie", z=0.5)(honest, 3, torch.Generator())
    rows = torch.vstack([forged, honest])
    assert Krum(f=3)(rows).report[0].weight == 1
    assert [entry.weight > 0 for entry in MultiKrum(f=3)(rows).report[:3]] == [True] * 3
