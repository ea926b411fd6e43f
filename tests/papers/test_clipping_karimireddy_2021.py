"""Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization",
ICML 2021: a test per claim; and Ozfatura et al., "Byzantines can also learn from history:
fall of centered clipping in federated learning", 2022, on what it leaves open.
"""

import pytest
import torch

from pliska.aggregation import CenteredClipping, CoordinateMedian, Rule


def test_each_row_moves_the_centre_by_at_most_tau_over_n() -> None:
    # Section 4, Equation (10): whatever f rows say, one step moves v by at most f tau / n
    # more than the honest ones do.
    generator = torch.Generator().manual_seed(1)
    honest = torch.randn(8, 30, generator=generator).double()
    last = honest.mean(dim=0)
    rule = CenteredClipping(f=2, tau=3.0, iterations=1)
    calm = rule(torch.vstack([last, last, honest]), memory={"centre": last}).vector
    for size in (1.0, 1e3, 1e30):
        lies = size * torch.randn(2, 30, generator=generator).double()
        moved = rule(torch.vstack([lies, honest]), memory={"centre": last}).vector
        assert float((moved - calm).norm()) <= 2 * 3.0 / 10 + 1e-9


def test_one_step_from_the_right_start_is_enough() -> None:
    # Theorem III, remark: from a start near the honest mean a single iteration gives an
    # error of the order of the deviation.
    generator = torch.Generator().manual_seed(2)
    honest = torch.randn(20, 50, generator=generator)
    rows = torch.vstack([torch.full((2, 50), 1e6), honest])
    start = honest.mean(dim=0) + 0.1
    found = CenteredClipping(f=2, tau=7.0, iterations=1)(rows, memory={"centre": start}).vector
    assert float((found - honest.mean(dim=0)).norm()) < 1.5


def test_start_is_robust_where_there_is_no_history() -> None:
    # ByzPy starts at the mean: 8 near (1, 1), 2 at 1e6 and tau = 1 give 2e5.
    rows = torch.vstack([torch.ones(8, 2), torch.full((2, 2), 1e6)])
    assert float((CenteredClipping(f=2, tau=1.0)(rows).vector - 1).norm()) < 1


def drift(rule: Rule, rounds: int = 100) -> float:
    """Distance from the optimum when liars stay within the spread but never change."""
    generator = torch.Generator().manual_seed(3)
    w, momenta, memory = torch.ones(20), torch.zeros(16, 20), None
    for _ in range(rounds):
        momenta = 0.95 * momenta + 0.05 * (w + torch.randn(16, 20, generator=generator))
        lies = (momenta.mean(dim=0) - 1.5 * momenta.std(dim=0)).expand(4, -1)
        result = rule(torch.vstack([lies, momenta]), memory=memory)
        memory = result.memory
        w = w - 0.1 * result.vector
    return float(w.norm())


def test_momentum_and_history_withstand_lies_that_agree_over_time() -> None:
    # Section 3 and Theorem VI: lies within the spread that never change direction stop
    # rules without history; here the distance falls from 4.5 to the order of the noise.
    assert drift(CenteredClipping(f=4, iterations=1)) < 1


def test_memory_is_passed_and_nothing_is_kept() -> None:
    rule = CenteredClipping(f=1, tau=3.0)
    rows = torch.randn(5, 8, generator=torch.Generator().manual_seed(4))
    result = rule(rows)
    assert result.memory is not None
    assert torch.equal(result.memory["centre"], result.vector)
    assert rule == CenteredClipping(f=1, tau=3.0)
    assert not torch.equal(rule(rows, memory=result.memory).vector, result.vector)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_rule_is_a_median_like_estimate_of_location(offset: float) -> None:
    rows = offset + torch.randn(9, 30, generator=torch.Generator().manual_seed(5))
    found = CenteredClipping(f=2)(rows).vector - CoordinateMedian(f=2)(rows).vector
    assert float(found.norm()) < 3


def held_off(rule: CenteredClipping, reach: float) -> float:
    """Distance at which liars hold the aggregate who know the last one, and lie at `reach` from it.

    The honest rows lie around zero, at 0.45 from it.
    """
    generator = torch.Generator().manual_seed(6)
    direction = torch.nn.functional.normalize(torch.ones(20), dim=0)
    centre, memory = torch.zeros(20), None
    for _ in range(60):
        honest = 0.1 * torch.randn(16, 20, generator=generator)
        lies = (centre + reach * direction).expand(4, -1)
        result = rule(torch.vstack([lies, honest]), memory=memory)
        centre, memory = result.vector, result.memory
    return float(centre.norm())


def test_liars_who_know_the_centre_are_not_clipped_within_tau() -> None:
    # Ozfatura et al., Section 4: the radius must fit the honest spread. One of 10 lets 4 of 20
    # hold the aggregate at up to f tau / (n - f); the default follows the spread.
    assert held_off(CenteredClipping(f=4, tau=10.0, iterations=1), 10.0) > 2.0
    assert held_off(CenteredClipping(f=4, iterations=1), 10.0) < 0.5
