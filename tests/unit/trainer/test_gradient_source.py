"""Where a worker's gradients come from."""

import pytest
import torch
from training.toy_job import toy_job

from pliska.aggregation import AttackName, TrimmedMean
from pliska.coordinator.training.computation import Computation
from pliska.trainer.adversary import Adversary
from pliska.trainer.gradient_source import Assignment, ByzantineSource, HonestSource

LEASES = {"w1": 4, "w2": 7, "w3": 5, "w4": 6}


@pytest.fixture
def computation() -> Computation:
    return Computation(toy_job())


def assigned(*members: str) -> Assignment:
    """What w1 is to compute in round 2 with these members."""
    return Assignment(2, LEASES["w1"], {member: LEASES[member] for member in members})


def liar(computation: Computation, attack: AttackName, *accomplices: str) -> ByzantineSource:
    return ByzantineSource(computation, "w1", Adversary(attack), frozenset({"w1", *accomplices}))


def test_honest_source_sends_its_own_batchs_gradient(computation: Computation) -> None:
    source = HonestSource(computation)
    assert not source.needs_members
    assert torch.equal(
        source.gradient(Assignment(2, LEASES["w1"])), computation.gradient(LEASES["w1"])
    )


def test_sign_flip_needs_nobody_else(computation: Computation) -> None:
    source = liar(computation, AttackName.SIGN_FLIP)
    assert not source.needs_members
    assert torch.equal(
        source.gradient(Assignment(2, LEASES["w1"])), -10 * computation.gradient(LEASES["w1"])
    )


def test_omniscient_attack_knows_the_honest_workers_batches_and_not_its_accomplices(
    computation: Computation,
) -> None:
    source = liar(computation, AttackName.IPM, "w2")
    assert source.needs_members
    honest = torch.stack([computation.gradient(LEASES[worker]) for worker in ("w3", "w4")])
    sent = source.gradient(assigned("w1", "w2", "w3", "w4"))
    assert torch.nn.functional.cosine_similarity(sent, honest.mean(0), dim=0) < -0.999


def test_accomplices_that_are_there_forge_together_and_differ(computation: Computation) -> None:
    def sent(worker: str) -> torch.Tensor:
        adversary = Adversary(AttackName.GAUSSIAN, seed=1)
        source = ByzantineSource(computation, worker, adversary, frozenset({"w1", "w2"}))
        return source.gradient(Assignment(2, LEASES["w1"]))

    assert not torch.equal(sent("w1"), sent("w2"))
    assert torch.equal(sent("w1"), sent("w1"))


def test_absent_accomplices_are_not_counted(computation: Computation) -> None:
    adversary = Adversary(AttackName.ADAPTIVE, rule=TrimmedMean(f=1))
    source = ByzantineSource(computation, "w1", adversary, frozenset({"w0", "w1"}))
    together = source.gradient(assigned("w1", "w2", "w3"))
    alone = ByzantineSource(computation, "w1", adversary, frozenset({"w1"}))
    assert torch.equal(together, alone.gradient(assigned("w1", "w2", "w3")))


def test_omniscient_attack_without_victims_still_sends_something_finite(
    computation: Computation,
) -> None:
    sent = liar(computation, AttackName.IPM).gradient(assigned("w1"))
    assert bool(sent.isfinite().all())


def test_label_flip_is_the_gradient_of_wrong_targets(computation: Computation) -> None:
    sent = liar(computation, AttackName.LABEL_FLIP).gradient(Assignment(2, LEASES["w1"]))
    assert torch.equal(sent, computation.gradient(LEASES["w1"], lambda targets: 2 - targets))
