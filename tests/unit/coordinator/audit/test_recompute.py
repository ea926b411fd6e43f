"""Whoever has a job's files, code and data finds out which gradients are not their batches'."""

import asyncio
from collections.abc import Callable

import pytest
from training.audited import KEEPING, Audited, lie
from training.leadership import Lead

from pliska.coordinator.audit.recompute import Recomputed, recompute
from pliska.coordinator.errors import NotKeptError

WORKERS = ("w1", "w2", "w3", "w4", "w5")


async def trained(lead: Lead) -> Audited:
    job = Audited(lead)
    lead.begin()
    await lead.join(*WORKERS)
    async with lead.running():
        for _ in range(3):
            await job.round(*WORKERS, lies={"w5": lie(job.computation.dimension)})
        await job.settled()
    return job


@pytest.fixture
def job(lead_toy: Callable[..., Lead]) -> Audited:
    rule = 'name = "multi-krum", f = 1'
    return asyncio.run(trained(lead_toy(workers=5, quorum=5, rule=rule, more=KEEPING)))


def recomputed(job: Audited, number: int, worker: str | None = None) -> dict[str, Recomputed]:
    commits = job.commits()
    found = recompute(job.lead.job, job.lead.storage, commits[number - 1], commits, worker)
    return {each.header.worker: each for each in found}


def test_liars_gradient_is_far_from_its_batchs_and_the_others_are_equal(job: Audited) -> None:
    for number in (1, 3):
        found = recomputed(job, number)
        assert [found[worker].is_equal for worker in WORKERS] == [True] * 4 + [False]
        assert [found[worker].is_lie for worker in WORKERS] == [False] * 4 + [True]
    assert list(recomputed(job, 2, "w3")) == ["w3"]
    assert recomputed(job, 2, "nobody") == {}


def test_without_the_gradients_it_is_only_said_which_are_equal(job: Audited) -> None:
    for path in (job.files / "jobs/toy/payloads/000000000002").iterdir():
        path.unlink()
    found = recomputed(job, 2)
    assert [found[worker].is_equal for worker in WORKERS] == [True] * 4 + [False]
    assert (found["w5"].deviation, found["w5"].is_lie) == (None, None)
    assert (found["w1"].deviation, found["w1"].is_lie) == (0.0, False)


def test_base_that_is_not_in_the_files_is_named(job: Audited) -> None:
    commits = job.commits()
    found = recompute(job.lead.job, job.lead.storage, commits[2], commits[2:], None)
    with pytest.raises(NotKeptError, match="version 2 is not in these files"):
        list(found)
