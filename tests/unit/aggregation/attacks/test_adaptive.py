import pytest
import torch

from pliska.aggregation import (
    NNM,
    CoordinateMedian,
    Krum,
    Mean,
    MultiKrum,
    Rule,
    TrimmedMean,
    attack_named,
)


def honest_rows(h: int = 9, d: int = 60, seed: int = 1) -> torch.Tensor:
    return 0.3 + torch.randn(h, d, generator=torch.Generator().manual_seed(seed))


def harm(target: Rule, honest: torch.Tensor, name: str, **parameters: object) -> float:
    lies = attack_named(name, **parameters)(honest, 3, torch.Generator().manual_seed(2))
    vector = target(torch.vstack([lies, honest])).vector
    return float((vector - honest.mean(dim=0)).norm())


RULES = [TrimmedMean(f=3), Krum(f=3), MultiKrum(f=3), CoordinateMedian(f=3), NNM() | Krum(f=3)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.title)
def test_optimised_strength_harms_at_least_as_much_as_fixed_ones(rule: Rule) -> None:
    honest = honest_rows()
    best = harm(rule, honest, "alie-optimised", rule=rule)
    for z in (0.5, 1.0, 1.5, 3.0):
        assert best >= harm(rule, honest, "alie", z=z) * 0.95
    best = harm(rule, honest, "ipm-optimised", rule=rule)
    for epsilon in (0.1, 1.0, 10.0):
        assert best >= harm(rule, honest, "ipm", epsilon=epsilon) * 0.95


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.title)
def test_adaptive_attacker_harms_at_least_as_much_as_any_of_its_parts(rule: Rule) -> None:
    honest = honest_rows()
    best = harm(rule, honest, "adaptive", rule=rule)
    for name in ("alie-optimised", "ipm-optimised"):
        assert best >= harm(rule, honest, name, rule=rule) * 0.999
    assert best >= harm(rule, honest, "mimic") * 0.999


def test_our_pipeline_bears_the_attacker_that_knows_it() -> None:
    # The honest lie about sqrt(60) = 7.7 from their mean; the plain mean goes anywhere.
    honest = honest_rows()
    for rule in RULES:
        assert harm(rule, honest, "adaptive", rule=rule) < 12
    assert harm(Mean(), honest, "adaptive", rule=Mean()) > 1000


def test_an_attacker_that_the_gate_would_refuse_tries_something_else() -> None:
    honest = torch.full((5, 3), 3e38)
    honest[:, 0] = torch.linspace(1e38, 3e38, 5)
    lies = attack_named("adaptive", rule=CoordinateMedian(f=1))(honest, 1, torch.Generator())
    assert lies.shape == (1, 3)
