"""Rules that average a subset or filter by spread, a test per claim: MDA (El Mhamdi et al.,
PODC 2020), SMEA (Allouah et al., ICML 2023), CAF (Allouah, Guerraoui, Stephan, ICML 2025),
MoNNA (Farhadkhani et al., ICML 2023), CGE (Gupta, Liu, Vaidya, DSN-W 2021).
"""

import pytest
import torch

from pliska.aggregation import CAF, CGE, MDA, SMEA, BoundError, MoNNA, Rule, attack_named

N, F = 11, 3
SUBSET_RULES: list[Rule] = [MDA(f=F), SMEA(f=F), CAF(f=F)]


@pytest.mark.parametrize("rule", SUBSET_RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("attack", ["sign-flip", "ipm", "min-max", "gaussian", "huge-coordinate"])
def test_error_is_bounded_by_the_honest_spread(rule: Rule, attack: str) -> None:
    # MDA, Section 3: |F - mean| <= 2f / (n - f) diameter. SMEA, Proposition 4, and CAF,
    # Theorem 2: error^2 within a constant times f / n of the largest eigenvalue.
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        honest = torch.randn(N - F, 40, generator=generator)
        lies = attack_named(attack)(honest, F, generator)
        vector = rule(torch.vstack([lies, honest])).vector
        diameter = float(torch.cdist(honest, honest).max())
        error = float((vector - honest.mean(dim=0)).norm())
        assert error <= 2 * F / (N - F) * diameter, f"seed={seed}"


@pytest.mark.parametrize("rule", [MDA, SMEA, CAF, CGE])
def test_less_than_half_may_lie(rule: type[Rule]) -> None:
    rule(f=3).check(7)
    with pytest.raises(BoundError, match=r"n >= 2f \+ 1"):
        rule(f=3).check(6)


def test_far_lies_have_no_part_in_the_answer() -> None:
    honest = torch.randn(8, 40, generator=torch.Generator().manual_seed(1))
    rows = torch.vstack([100 + honest[:3], honest])
    for rule in (MDA(f=F), SMEA(f=F)):
        assert torch.allclose(rule(rows).vector, honest.mean(dim=0), atol=1e-5)
    assert [entry.weight < 1e-9 for entry in CAF(f=F)(rows).report[:3]] == [True] * 3


def test_caf_needs_no_bound_on_the_covariance() -> None:
    # Section 4: nothing but n and f is given, and the answer follows any scale.
    rows = torch.randn(11, 40, generator=torch.Generator().manual_seed(2)).double()
    rows[:3] += 20
    base = CAF(f=3)(rows).vector
    for scale in (1e-20, 1e20):
        assert torch.allclose(CAF(f=3)(rows * scale).vector / scale, base, rtol=1e-9)


def test_monna_never_leaves_the_reach_of_the_trusted_row() -> None:
    # Lemma 1: no kept row is farther from the trusted one than the farthest honest row.
    honest = torch.randn(8, 40, generator=torch.Generator().manual_seed(3))
    reach = float((honest - honest[0]).norm(dim=1).max())
    for size in (1.0, 1e3, 1e30):
        lies = size * torch.randn(3, 40, generator=torch.Generator().manual_seed(4))
        found = MoNNA(f=3)(torch.vstack([honest, lies]), reference=honest[0]).vector
        assert float((found - honest[0]).norm()) <= reach


def test_cge_never_is_longer_than_the_honest_rows() -> None:
    # Section 2: after sorting, every kept row is no longer than some honest row.
    honest = torch.randn(8, 40, generator=torch.Generator().manual_seed(5))
    for size in (1.0, 1e3, 1e30):
        lies = size * torch.randn(3, 40, generator=torch.Generator().manual_seed(6))
        found = CGE(f=3)(torch.vstack([honest, lies])).vector
        assert float(found.norm()) <= float(honest.norm(dim=1).max())
