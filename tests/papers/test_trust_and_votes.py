"""Rules that stand on trust, history or votes, a test per claim: FLTrust (Cao, Fang, Liu, Gong,
NDSS 2021), FoolsGold (Fung, Yoon, Beschastnikh, RAID 2020), signSGD with majority vote
(Bernstein, Zhao, Azizzadenesheli, Anandkumar, ICLR 2019).
"""

import pytest
import torch

from pliska.aggregation import BoundError, FLTrust, FoolsGold, SignVote, attack_named


@pytest.mark.parametrize("attack", ["sign-flip", "gaussian", "huge-coordinate"])
def test_fltrust_follows_the_clean_gradient_with_most_workers_lying(attack: str) -> None:
    # NDSS, Section V: up to 40 to 60 % and more of malicious clients.
    generator = torch.Generator().manual_seed(1)
    truth = torch.randn(100, generator=generator)
    honest = truth + torch.randn(3, 100, generator=generator)
    lies = attack_named(attack)(honest, 7, generator)
    trusted = truth + 0.5 * torch.randn(100, generator=generator)
    found = FLTrust(f=7)(torch.vstack([lies, honest]), reference=trusted).vector
    assert float(torch.cosine_similarity(found, truth, dim=0)) > 0.3
    assert float(found.norm()) <= float(trusted.norm()) * (1 + 1e-6)


def test_fltrust_never_moves_against_the_clean_gradient() -> None:
    # Section IV-C: only cosines above zero count.
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        rows, trusted = (
            torch.randn(6, 30, generator=generator),
            torch.randn(30, generator=generator),
        )
        found = FLTrust(f=5)(rows, reference=trusted).vector
        assert float(found @ trusted) >= -1e-5


def test_foolsgold_bears_more_sybils_than_honest_workers() -> None:
    # RAID, Section 5: any number of sybils that share one aim.
    generator = torch.Generator().manual_seed(3)
    memory = None
    for _ in range(5):
        honest = torch.randn(5, 300, generator=generator)
        sybils = -2 + 0.1 * torch.randn(15, 300, generator=generator)
        result = FoolsGold(f=15)(torch.vstack([sybils, honest]), memory=memory)
        memory = result.memory
    assert sum(entry.weight for entry in result.report[:15]) < 0.01


def test_foolsgold_does_not_find_one_liar_alone() -> None:
    # Section 6: a single attacker has nobody to be alike with.
    rows = torch.randn(6, 300, generator=torch.Generator().manual_seed(4))
    rows[0] *= -100
    assert FoolsGold(f=1)(rows).report[0].weight > 0.1


def test_foolsgold_remembers_one_vector_for_each_worker() -> None:
    memory = None
    for _ in range(20):
        memory = FoolsGold(f=1)(torch.ones(4, 5), memory=memory).memory
    assert isinstance(memory, dict)
    assert {name: vector.shape for name, vector in memory.items()} == dict.fromkeys(
        "0123", torch.Size([5])
    )


def test_vote_is_right_where_most_signs_are() -> None:
    # ICLR, Theorem 2: less than half of blind adversaries; the error probability of each
    # coordinate falls with the number of honest voters.
    generator = torch.Generator().manual_seed(5)
    truth = torch.ones(2000)

    def wrong(honest: int, liars: int) -> float:
        votes = truth + 2 * torch.randn(honest, 2000, generator=generator)
        rows = torch.vstack([votes, -1e30 * votes[:liars]])
        return float((SignVote(f=liars)(rows).vector < 0).float().mean())

    assert wrong(41, 8) < wrong(11, 2) < 0.3
    with pytest.raises(BoundError):
        SignVote(f=3).check(6)
