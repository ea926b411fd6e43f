"""Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries:
Byzantine tolerant gradient descent", NeurIPS 2017: a test per claim.
"""

import math

import pytest
import torch
from torch import Tensor

from pliska.aggregation import BoundError, Krum, Mean, MultiKrum, attack_named


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def kept(rows: Tensor, rule: Krum | MultiKrum) -> list[str]:
    return [entry.worker for entry in rule(rows).report if entry.weight > 0]


def test_one_liar_makes_a_linear_combination_any_vector_it_wants() -> None:
    # Section 3, Lemma 1: no linear combination of the proposals tolerates a
    # single Byzantine worker. The liar solves for its own row.
    honest = torch.randn(7, 50, generator=torch.Generator().manual_seed(1)).double()
    wanted = torch.full((50,), -123.0, dtype=torch.float64)
    lie = 8 * wanted - honest.sum(dim=0)
    assert torch.allclose(Mean()(torch.vstack([honest, lie])).vector, wanted)


def test_all_distances_are_fooled_by_two_liars_where_krum_is_not() -> None:
    # Section 4, Figure 2: choosing the row of least total distance to *all*
    # rows tolerates one liar; two collude, one pulling the barycentre far away
    # and the other sitting on it.
    honest = torch.randn(7, 3, generator=torch.Generator().manual_seed(2))
    far = torch.full((1, 3), 1000.0)
    at_barycentre = (honest.sum(dim=0, keepdim=True) + far) / 8
    rows = torch.vstack([honest, far, at_barycentre])
    to_all = torch.cdist(rows, rows).square().sum(dim=1)
    assert int(to_all.argmin()) == 8
    assert kept(rows, Krum(f=2))[0] not in {"7", "8"}


def test_score_sums_squared_distances_to_the_n_f_2_nearest_others() -> None:
    # Section 4, worked by hand: n=7, f=2, so 3 neighbours. For 20 they are
    # 17, 24, 26: 9 + 16 + 36 = 61; for 17: 9 + 25 + 36 = 70; for 24: 4 + 16 + 49 = 69.
    report = Krum(f=2)(column(4, 11, 12, 17, 20, 24, 26)).report
    scores = [float(entry.reason.split()[2].strip(",")) for entry in report]
    assert scores == [282, 86, 90, 70, 61, 69, 121]


def test_chosen_row_is_the_papers_and_not_that_of_one_neighbour_more() -> None:
    # With n-f-1 neighbours, as ByzFL and ByzPy count, the answer would be 17.
    rows = column(4, 11, 12, 17, 20, 24, 26)
    assert Krum(f=2)(rows).vector.item() == 20
    assert Krum(f=2, variant="kappa")(rows).vector.item() == 17


def test_distances_are_squared() -> None:
    # Unsquared norms, as in Garfield's Python, would choose 16.
    assert Krum(f=1)(column(11, 15, 16, 17, 30, 31, 38)).vector.item() == 17


def test_of_equal_scores_the_smallest_identifier_wins() -> None:
    # Section 4: "if two or more workers have the minimal score, we choose the
    # one with the smallest identifier".
    rows = column(5, 5, 5, 5, 5)
    assert kept(rows, Krum(f=1)) == ["0"]
    result = Krum(f=1)(rows, worker_ids=["e", "d", "c", "b", "a"])
    assert [entry.worker for entry in result.report if entry.weight] == ["a"]


@pytest.mark.parametrize("f", [0, 1, 2, 5])
def test_bound_is_2f_plus_2_below_n(f: int) -> None:
    # Section 4, Proposition 1 requires 2f + 2 < n.
    Krum(f=f).check(2 * f + 3)
    with pytest.raises(BoundError, match=rf"f={f} .*n >= 2f \+ 3.*n={2 * f + 2}"):
        Krum(f=f).check(2 * f + 2)


@pytest.mark.parametrize("attack", ["sign-flip", "ipm", "alie", "gaussian", "huge-coordinate"])
def test_krum_stays_within_the_cone_around_the_gradient(attack: str) -> None:
    # Section 4, Proposition 1 (i): if eta(n,f) sqrt(d) sigma < ||g||, then
    # <E Krum, g> >= (1 - sin alpha) ||g||^2 with sin alpha = eta sqrt(d) sigma / ||g||.
    n, f, d, draws, seed = 15, 3, 20, 300, 3
    eta = math.sqrt(2 * (n - f + (f * (n - f - 2) + f * f * (n - f - 1)) / (n - 2 * f - 2)))
    sine = 0.5
    gradient = torch.ones(d)
    deviation = sine * float(gradient.norm()) / (eta * math.sqrt(d))
    generator = torch.Generator().manual_seed(seed)
    forge = attack_named(attack)
    total = torch.zeros(d)
    for _ in range(draws):
        honest = gradient + deviation * torch.randn(n - f, d, generator=generator)
        total += Krum(f=f)(torch.vstack([forge(honest, f, generator), honest])).vector
    inner = float(total / draws @ gradient)
    assert inner >= (1 - sine) * float(gradient @ gradient), f"seed={seed}"


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e30, 1e38])
def test_krum_is_never_longer_than_the_honest_rows_allow(size: float) -> None:
    # Section 4, Proposition 1 (ii), the step of the proof that bounds moments:
    # a chosen lie has an honest neighbour, so its length is at most
    # R + 2 R sqrt(n - f - 2) with R the longest honest row.
    n, f, d, seed = 9, 3, 10, 4
    generator = torch.Generator().manual_seed(seed)
    for _ in range(50):
        honest = torch.randn(n - f, d, generator=generator)
        lies = size * torch.randn(f, d, generator=generator).clamp(-3, 3)
        longest = float(honest.norm(dim=1).max())
        chosen = Krum(f=f)(torch.vstack([lies, honest])).vector
        limit = longest * (1 + 2 * math.sqrt(n - f - 2))
        assert float(chosen.double().norm()) <= limit * (1 + 1e-6), f"seed={seed}"


def test_multi_krum_averages_the_m_best_scores() -> None:
    # Section 6. Scores as above: 61 (20), 69 (24), 70 (17), 86 (11), 90 (12).
    rows = column(4, 11, 12, 17, 20, 24, 26)
    for m, mean in ((1, 20.0), (2, 22.0), (3, 61 / 3), (4, 72 / 4), (5, 84 / 5)):
        assert MultiKrum(f=2, m=m)(rows).vector.item() == pytest.approx(mean)


def test_multi_krum_runs_from_krum_to_the_mean() -> None:
    # Section 6: "the cases m = 1 and m = n correspond to Krum and averaging".
    rows = torch.randn(9, 40, generator=torch.Generator().manual_seed(5))
    assert torch.equal(MultiKrum(f=2, m=1)(rows).vector, Krum(f=2)(rows).vector)
    assert torch.allclose(MultiKrum(f=0, m=9)(rows).vector, Mean()(rows).vector)


def test_multi_krum_takes_n_f_2_rows_unless_told() -> None:
    # The largest m with a resilience proof: El Mhamdi, Guerraoui, Rouault 2019.
    rows = torch.randn(9, 40, generator=torch.Generator().manual_seed(6))
    assert len(kept(rows, MultiKrum(f=2))) == 5
    assert len(kept(rows, MultiKrum(f=2, variant="kappa"))) == 7


def test_multi_krum_refuses_to_average_more_than_n_f_rows() -> None:
    MultiKrum(f=2, m=6).check(8)
    with pytest.raises(BoundError, match=r"m \+ f \(m = 7\)"):
        MultiKrum(f=2, m=7).check(8)
