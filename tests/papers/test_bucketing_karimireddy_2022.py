"""Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via
bucketing", ICLR 2022: a test per claim.
"""

import torch

from pliska.aggregation import Bucketing, CoordinateMedian, Krum, attack_named


def labels_like(n: int, d: int = 100) -> torch.Tensor:
    """Rows of workers that see one class each: far apart, with a small mean."""
    rows = torch.zeros(n, d)
    for i in range(n):
        rows[i, (i * d // n) : ((i + 1) * d // n)] = 1.0
    return rows


def test_median_ignores_minorities_and_buckets_bring_them_back() -> None:
    # Section 4.1: on an imbalanced choice of +1 and -1 the median always answers with
    # the majority; bucket means give the minority its part.
    rows = torch.cat([torch.ones(13), -torch.ones(12)])[:, None]
    assert CoordinateMedian(f=1)(rows).vector.item() == 1
    rule = Bucketing(s=2) | CoordinateMedian(f=1)
    found = [rule(rows, seed=seed).vector.item() for seed in range(200)]
    assert abs(sum(found) / len(found)) < 0.3


def test_buckets_halve_the_variance_among_points() -> None:
    # Lemma 1: the pairwise variance falls by s, the mean stays.
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(40, 200, generator=generator)
    mixed = []
    for seed in range(20):
        lot = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
        mixed.append(rows[lot].view(20, 2, -1).mean(dim=1).var(dim=0).mean())
    assert 0.45 < float(torch.stack(mixed).mean() / rows.var(dim=0).mean()) < 0.55


def test_a_liar_spoils_at_most_its_bucket() -> None:
    # Section 4.2: at most f of the ceil(n / s) points are bad.
    rows = torch.ones(13, 4)
    rows[:2] = 1e30
    for seed in range(30):
        vector = (Bucketing(s=2) | Krum(f=2))(rows, seed=seed).vector
        assert torch.equal(vector, torch.ones(4)), f"seed={seed}"


def test_krum_on_unlike_workers_picks_one_and_buckets_share() -> None:
    # Section 3, Figure 1: Krum follows one worker's data.
    rows = labels_like(14)
    mean = rows.mean(dim=0)
    alone = float((Krum(f=2)(rows).vector - mean).norm())
    rule = Bucketing(s=2) | Krum(f=2)
    shared = [float((rule(rows, seed=seed).vector - mean).norm()) for seed in range(10)]
    assert max(shared) < alone


def test_mimic_copies_no_lie_and_starves_the_others() -> None:
    # Section 3.2: all forged rows equal one honest row, which then is over-represented.
    noise = torch.randn(10, 100, generator=torch.Generator().manual_seed(2))
    honest = labels_like(10) + 0.01 * noise
    forged = attack_named("mimic")(honest, 4, torch.Generator())
    assert any(torch.equal(forged[0], row) for row in honest)
    chosen = Krum(f=4)(torch.vstack([forged, honest])).vector
    assert torch.equal(chosen, forged[0])
