"""Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, "Fixing by mixing: a recipe for
optimal Byzantine ML under heterogeneity", AISTATS 2023: a test per claim.
"""

import pytest
import torch
from torch import Tensor

from pliska.aggregation import (
    NNM,
    BoundError,
    CoordinateMedian,
    GeometricMedian,
    Krum,
    Rule,
    TrimmedMean,
    attack_named,
)

N, F, D = 15, 3, 60
RULES: list[tuple[Rule, float]] = [
    # Proposition 1, Table 1: kappa of each rule without mixing.
    (TrimmedMean(f=F), 6 * F / (N - 2 * F) * (1 + F / (N - 2 * F))),
    (Krum(f=F, variant="kappa"), 6 * (1 + F / (N - 2 * F))),
    (GeometricMedian(f=F), 4 * (1 + F / (N - 2 * F)) ** 2),
    (CoordinateMedian(f=F), 4 * (1 + F / (N - 2 * F)) ** 2),
]
ATTACKS = ["sign-flip", "ipm", "alie-optimised", "min-max", "mimic", "gaussian"]


def squared_error_and_spread(rule: Rule, attack: str, seed: int) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(seed)
    honest = torch.randn(N - F, D, generator=generator)
    parameters = {"rule": rule} if attack == "alie-optimised" else {}
    lies = attack_named(attack, **parameters)(honest, F, generator)
    vector = rule(torch.vstack([lies, honest])).vector
    mean = honest.mean(dim=0)
    spread: Tensor = (honest - mean).square().sum(dim=1).mean()
    return float((vector - mean).square().sum()), float(spread)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(("rule", "kappa"), RULES, ids=lambda each: getattr(each, "name", ""))
def test_rule_is_f_kappa_robust(rule: Rule, kappa: float, attack: str) -> None:
    # Definition 2: |F(x) - mean_S|^2 <= kappa / |S| * sum over S of |x_i - mean_S|^2.
    for seed in range(3):
        error, spread = squared_error_and_spread(rule, attack, seed)
        assert error <= kappa * spread, f"seed={seed}"


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(("rule", "kappa"), RULES, ids=lambda each: getattr(each, "name", ""))
def test_mixing_brings_kappa_down_to_the_order_of_f_over_n(
    rule: Rule, kappa: float, attack: str
) -> None:
    # Theorem 1: NNM makes any kappa-robust rule 8 f / (n - f) (1 + kappa)-robust.
    bound = 8 * F / (N - F) * (1 + kappa)
    for seed in range(3):
        error, spread = squared_error_and_spread(NNM() | rule, attack, seed)
        assert error <= bound * spread, f"seed={seed}"


def test_mixing_helps_where_workers_differ() -> None:
    # Section 5: the gap between Krum alone and Krum after NNM under mimic.
    alone = sum(squared_error_and_spread(Krum(f=F), "mimic", seed)[0] for seed in range(5))
    mixed = sum(squared_error_and_spread(NNM() | Krum(f=F), "mimic", seed)[0] for seed in range(5))
    assert mixed < alone / 3


@pytest.mark.parametrize("f", [1, 2, 5])
def test_less_than_half_may_lie(f: int) -> None:
    (NNM() | TrimmedMean(f=f)).check(2 * f + 1)
    with pytest.raises(BoundError):
        (NNM() | TrimmedMean(f=f)).check(2 * f)


def test_no_rule_can_do_better_than_f_over_n_2f() -> None:
    # Proposition 2: kappa >= f / (n - 2f). With f rows at 1 and the others at 0, all zeros
    # may be the honest ones, so 0 is the answer; then the ones were honest.
    rows = torch.zeros(N, 1)
    rows[:F] = 1.0
    for rule, _ in RULES:
        assert (NNM() | rule)(rows).vector.item() == 0
    honest = rows[: N - F]
    spread = float((honest - honest.mean()).square().mean())
    assert float(honest.mean() ** 2) / spread == pytest.approx(F / (N - 2 * F))
