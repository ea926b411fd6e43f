"""Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and
defenses for federated learning", NDSS 2021: a test per claim.
"""

import pytest
import torch

from pliska.aggregation import DnC, MultiKrum, attack_named


def rows_under(attack: str, seed: int, h: int = 12, f: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    honest = 0.1 + torch.randn(h, 400, generator=generator)
    return torch.vstack([attack_named(attack)(honest, f, generator), honest])


@pytest.mark.parametrize("attack", ["min-max", "min-sum"])
def test_forged_rows_pass_for_honest_among_distances(attack: str) -> None:
    # Section IV: Multi-Krum keeps them.
    kept = [entry.weight > 0 for entry in MultiKrum(f=4)(rows_under(attack, 1)).report]
    assert kept[:4] == [True] * 4


def test_min_sum_is_the_weaker_of_the_two() -> None:
    # Section IV-C: its bound implies that of Min-Max.
    for seed in range(5):
        honest = rows_under("min-max", seed)[4:]
        mean = honest.mean(dim=0)
        reach = {}
        for name in ("min-max", "min-sum"):
            forged = attack_named(name)(honest, 1, torch.Generator())[0]
            reach[name] = float((forged - mean).norm())
        assert reach["min-sum"] <= reach["min-max"] * (1 + 1e-6)


@pytest.mark.parametrize("attack", ["min-max", "min-sum"])
def test_dnc_drops_what_points_one_way_together(attack: str) -> None:
    # Section V, Algorithm 2: the forged rows set the direction of largest spread.
    found = [
        sum(entry.weight > 0 for entry in DnC(f=4)(rows_under(attack, seed), seed=seed).report[:4])
        for seed in range(5)
    ]
    assert sum(found) == 0
