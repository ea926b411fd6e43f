"""El Mhamdi, Guerraoui, Rouault, "The hidden vulnerability of distributed learning in
Byzantium", ICML 2018; and by the same, "Fast and robust distributed learning in high
dimension", 2019 (Multi-Bulyan): a test per claim.
"""

import math

import pytest
import torch

from pliska.aggregation import BoundError, Bulyan, Krum, MultiBulyan, Rule

RULES = [Bulyan, MultiBulyan]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("f", [0, 1, 2, 5])
def test_bound_is_4f_3(rule: type[Rule], f: int) -> None:
    # Section 4: n >= 4f + 3.
    rule(f=f).check(4 * f + 3)
    with pytest.raises(BoundError, match=r"n >= 4f \+ 3"):
        rule(f=f).check(4 * f + 2)


def test_krum_lets_a_single_coordinate_go_as_far_as_the_root_of_d() -> None:
    # Section 3: a liar that agrees with the honest everywhere but in one coordinate is
    # chosen by Krum though it lies Omega(sqrt(d)) away there; Bulyan stays within the
    # honest spread of that coordinate (Proposition 2).
    n, f, d = 15, 3, 10_000
    generator = torch.Generator().manual_seed(1)
    honest = torch.randn(n - f, d, generator=generator)
    lies = honest.mean(dim=0).repeat(f, 1)
    lies[:, 0] += 0.5 * math.sqrt(d)
    rows = torch.vstack([lies, honest])
    assert float(Krum(f=f)(rows).vector[0]) > 30
    for rule in RULES:
        assert abs(float(rule(f=f)(rows).vector[0])) < 3


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e38])
def test_every_coordinate_stays_near_honest_values(rule: type[Rule], size: float) -> None:
    # Proposition 2: each coordinate lies within the spread of the honest ones around an
    # honest value, for any f lies.
    f, generator = 2, torch.Generator().manual_seed(2)
    for _ in range(10):
        honest = torch.randn(9, 40, generator=generator)
        lies = size * torch.randn(f, 40, generator=generator).clamp(-3, 3)
        vector = rule(f=f)(torch.vstack([lies, honest])).vector
        low, high = honest.min(dim=0).values, honest.max(dim=0).values
        assert bool((vector >= low - (high - low)).all())
        assert bool((vector <= high + (high - low)).all())


def test_choice_is_repeated_on_the_remaining_rows() -> None:
    # Section 4, step 1. One pass over the scores, as in Flower's, answers 34.5.
    rows = torch.tensor([1.0, 14, 18, 22, 29, 35, 36, 38])[:, None]
    assert Bulyan(f=1)(rows).vector.item() == 30.5


def test_multi_bulyan_averages_more_rows_and_so_varies_less() -> None:
    # 2019, Section 4: the variance falls with the number of rows that are averaged.
    generator = torch.Generator().manual_seed(3)
    krum, multi = 0.0, 0.0
    for _ in range(30):
        rows = torch.randn(15, 50, generator=generator)
        krum += float(Krum(f=2)(rows).vector.square().mean())
        multi += float(MultiBulyan(f=2)(rows).vector.square().mean())
    assert multi < krum / 4
