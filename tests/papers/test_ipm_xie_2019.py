"""Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner
product manipulation", UAI 2019: a test per claim.
"""

import torch

from pliska.aggregation import Krum, Mean, attack_named


def honest_rows(n: int, d: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.05 + torch.randn(n, d, generator=generator)


def test_ipm_turns_the_inner_product_of_the_mean_negative() -> None:
    # Section 4.1: the mean's inner
    # product with the honest mean is negative once epsilon > (n - f) / f.
    honest = honest_rows(8, 50, seed=3).double()
    direction = honest.mean(dim=0)
    for epsilon, sign in ((3.9, 1), (4.1, -1)):
        forged = attack_named("ipm", epsilon=epsilon)(honest, 2, torch.Generator())
        inner = float(Mean()(torch.vstack([forged, honest])).vector @ direction)
        assert inner * sign > 0


def test_small_ipm_makes_krum_choose_it() -> None:
    # Section 4.3: a small epsilon puts the forged rows in the middle of honest ones
    # that spread widely, and Krum answers with a negative inner product.
    honest = honest_rows(8, 500, seed=4)
    forged = attack_named("ipm", epsilon=0.1)(honest, 3, torch.Generator())
    vector = Krum(f=3)(torch.vstack([forged, honest])).vector
    assert float(vector @ honest.mean(dim=0)) < 0
