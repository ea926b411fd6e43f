"""One leadership from its recovery to its end."""

import asyncio
from collections.abc import Callable

import pytest
from training.leadership import PATIENCE_S, Lead

from pliska.coordinator import leading as leading_module
from pliska.coordinator.errors import CoordinatorError, ModelStateError
from pliska.coordinator.leading import Leading
from pliska.coordinator.members import Member
from pliska.coordinator.replication.ledger import NoCopies
from pliska.coordinator.rounds.round_state import Phase
from pliska.discovery import KeyringFormatError
from pliska.locks import StoreUnavailableError

LeadToy = Callable[..., Lead]
WORKERS = ("w1", "w2", "w3")


async def train(lead: Lead, versions: range) -> None:
    for version in versions:
        for worker in WORKERS:
            await lead.push(worker, float(version))
        await lead.committed(version)


def leave(lead: Lead, *workers: str) -> None:
    for worker in workers:
        member = lead.leading.members.named(worker)
        assert isinstance(member, Member)
        lead.leading.leave(member)


async def test_next_leader_takes_up_what_was_committed(lead_toy: LeadToy) -> None:
    first = lead_toy()
    first.begin()
    await first.join(*WORKERS)
    async with first.running():
        await train(first, range(1, 5))
    digest = first.leading.status()["digest"]
    first.grant.resign()
    second = lead_toy("c2")
    second.begin()
    status = second.leading.status()
    assert (status["version"], status["round"], status["digest"]) == (4, 5, digest)
    assert status["epoch"] > first.leading.epoch
    assert second.leading.publisher.published.version == 4
    # It opens as soon as those of the last round are back.
    await second.join("w1", "w2")
    assert second.leading.status()["phase"] == "waiting"
    await second.join("w3")
    assert second.leading.status()["phase"] == "collecting"


async def test_next_leader_leases_what_the_last_one_did_not_count(lead_toy: LeadToy) -> None:
    first = lead_toy(quorum=2)
    first.begin()
    await first.join(*WORKERS)
    lost = first.lease("w3")
    async with first.running():
        await first.push("w1")
        await first.push("w2")
        leave(first, "w3")
        await first.committed(1)
    first.grant.resign()
    second = lead_toy("c2", quorum=2)
    second.begin()
    await second.join("w1", "w2")
    assert sorted(map(second.lease, ("w1", "w2"))) == [lost, 3]


async def test_commit_record_that_no_coordinator_signed_is_not_led_from(lead_toy: LeadToy) -> None:
    first = lead_toy()
    first.begin()
    await first.join(*WORKERS)
    async with first.running():
        await train(first, range(1, 2))
    first.grant.resign()
    record = first.directory.commit()
    assert record is not None
    forged = bytearray(record.value)
    forged[-1] ^= 1
    first.directory.backend.update(record.key, bytes(forged), record.modified)
    with pytest.raises(CoordinatorError):
        lead_toy("c2").begin()


async def test_finished_job_ends_when_the_last_worker_has_left(lead_toy: LeadToy) -> None:
    lead = lead_toy(count=1)
    lead.begin()
    await lead.join(*WORKERS)
    async with lead.running() as running, asyncio.timeout(PATIENCE_S):
        await train(lead, range(1, 2))
        leave(lead, "w1", "w2")
        await asyncio.sleep(0.05)
        assert not running.done()
        leave(lead, "w3")
        assert await running is Phase.FINISHED


async def test_worker_that_left_and_came_back_is_waited_for_at_the_end(lead_toy: LeadToy) -> None:
    lead = lead_toy(count=1)
    lead.begin()
    await lead.join(*WORKERS)
    leave(lead, *WORKERS)
    await lead.join(*WORKERS)
    async with lead.running() as running, asyncio.timeout(PATIENCE_S):
        await train(lead, range(1, 2))
        await asyncio.sleep(0.05)
        assert not running.done()
        leave(lead, *WORKERS)
        assert await running is Phase.FINISHED


async def test_worker_that_never_says_goodbye_does_not_hold_up_the_end(
    lead_toy: LeadToy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading_module, "LINGER_S", 0.1)
    lead = lead_toy(count=1)
    lead.begin()
    await lead.join(*WORKERS)
    async with lead.running() as running, asyncio.timeout(PATIENCE_S):
        await train(lead, range(1, 2))
        assert await running is Phase.FINISHED


@pytest.mark.parametrize(
    "error", [StoreUnavailableError("it is away"), KeyringFormatError("it is damaged")]
)
async def test_workers_are_waited_for_although_nobody_says_which_standbys_there_are(
    lead_toy: LeadToy, error: Exception
) -> None:
    class NobodyKnows(NoCopies):
        async def caught_up(self) -> None:
            raise error

    lead = lead_toy(count=1)
    lead.leading = Leading(lead.means(), lead.campaign(), copies=NobodyKnows())
    await lead.join(*WORKERS)
    async with lead.running() as running, asyncio.timeout(PATIENCE_S):
        await train(lead, range(1, 2))
        await asyncio.sleep(0.05)
        assert not running.done()
        leave(lead, *WORKERS)
        assert await running is Phase.FINISHED


async def test_who_takes_over_a_finished_job_offers_its_last_version_for_a_while(
    lead_toy: LeadToy, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lead_toy(count=1)
    first.begin()
    await first.join(*WORKERS)
    async with first.running():
        await train(first, range(1, 2))
    first.grant.resign()
    monkeypatch.setattr(leading_module, "LINGER_S", 0.3)
    second = lead_toy("c2", count=1)
    second.begin()
    assert second.leading.publisher.published.is_final
    async with second.running() as running, asyncio.timeout(PATIENCE_S):
        await second.join("w1")
        leave(second, "w1")
        await asyncio.sleep(0.05)
        assert not running.done(), "the other workers may still come"
        assert await running is Phase.FINISHED
    assert second.leading.status()["model_file"] == "jobs/toy/models/000000000001.safetensors"


async def test_version_that_cannot_be_measured_is_trained_all_the_same(
    lead_toy: LeadToy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> float:
        raise ModelStateError("the model's output is (8,), expected (8, classes)")

    monkeypatch.setattr("pliska.coordinator.evaluator.Evaluator.accuracy", fail)
    lead = lead_toy(count=1)
    lead.begin()
    await lead.join(*WORKERS)
    async with lead.running() as running, asyncio.timeout(PATIENCE_S):
        await train(lead, range(1, 2))
        leave(lead, *WORKERS)
        assert await running is Phase.FINISHED
    assert lead.leading.status()["accuracy"] == []


async def test_only_versions_that_are_due_are_measured(lead_toy: LeadToy) -> None:
    first = lead_toy(evaluate_every=2)
    first.begin()
    await first.join(*WORKERS)
    async with first.running():
        await train(first, range(1, 4))
        await first.status(lambda now: len(now["accuracy"]) == 2)
    first.grant.resign()
    second = lead_toy("c2", evaluate_every=2)
    second.begin()
    await second.join(*WORKERS)
    async with second.running():
        await train(second, range(4, 5))
        now = await second.status(lambda now: now["accuracy"])
    assert [each["version"] for each in first.leading.status()["accuracy"]] == [0, 2]
    assert [each["version"] for each in now["accuracy"]] == [4]


async def test_end_of_a_leadership_sends_waiting_workers_away(lead_toy: LeadToy) -> None:
    lead = lead_toy()
    lead.begin()
    async with lead.running():
        waiting = asyncio.create_task(lead.leading.publisher.newer_than(0, 60.0))
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting is None
