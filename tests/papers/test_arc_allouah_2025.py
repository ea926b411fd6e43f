"""Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan, "Adaptive gradient clipping for robust
federated learning", ICLR 2025: a test per claim.
"""

import math

import pytest
import torch

from pliska.aggregation import ARC, NNM, GeometricMedian, TrimmedMean, attack_named


@pytest.mark.parametrize(("n", "f"), [(10, 1), (10, 2), (15, 4), (11, 5)])
def test_k_longest_rows_get_the_length_of_the_next(n: int, f: int) -> None:
    # Algorithm 2: k = floor(2 (f / n) (n - f)).
    k = math.floor(2 * f / n * (n - f))
    lengths = torch.arange(1.0, n + 1)
    limit = ARC().limit(lengths.double(), f)
    assert limit == n - k
    assert int((lengths > limit).sum()) == k


def test_clipping_keeps_robustness_up_to_a_constant() -> None:
    # Theorem 3.2: if F is kappa-robust, F after ARC is (kappa + 2f / (n - 2f))-robust.
    n, f = 15, 3
    kappa = 6 * f / (n - 2 * f) * (1 + f / (n - 2 * f))
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        honest = torch.randn(n - f, 40, generator=generator)
        for attack in ("sign-flip", "ipm", "min-max", "gaussian"):
            lies = attack_named(attack)(honest, f, generator)
            vector = (ARC() | TrimmedMean(f=f))(torch.vstack([lies, honest])).vector
            mean = honest.mean(dim=0)
            spread = float((honest - mean).square().sum(dim=1).mean())
            error = float((vector - mean).square().sum())
            assert error <= (kappa + 2 * f / (n - 2 * f)) * spread, f"seed={seed}, {attack}"


def test_output_is_no_longer_than_the_honest_rows_allow() -> None:
    # Section 3.2: whatever the lies, no clipped row is longer than the longest honest one.
    generator = torch.Generator().manual_seed(1)
    honest = torch.randn(8, 30, generator=generator)
    longest = float(honest.norm(dim=1).max())
    for size in (1.0, 1e3, 1e30):
        lies = size * torch.randn(2, 30, generator=generator)
        vector = (ARC() | NNM() | GeometricMedian(f=2))(torch.vstack([lies, honest])).vector
        assert float(vector.norm()) <= longest * (1 + 1e-6)


def test_without_faults_nothing_is_clipped() -> None:
    assert ARC().limit(torch.tensor([3.0, 1.0, 2.0]).double(), 0) == 3
