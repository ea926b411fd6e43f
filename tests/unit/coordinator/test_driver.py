"""Rounds that run by themselves: effects, timers, cancellation."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from training.leadership import PATIENCE_S, Lead

from pliska.coordinator.leading import Leading
from pliska.coordinator.rounds.round_state import Phase
from pliska.coordinator.wire import ReplyCode

LeadToy = Callable[..., Lead]


@pytest.fixture
def lead(lead_toy: LeadToy) -> Lead:
    lead = lead_toy(count=2, quorum=2, soft_deadline_s=0.05, deadline_s=0.2)
    lead.begin()
    return lead


async def test_round_closes_at_its_soft_deadline_without_any_message(lead: Lead) -> None:
    await lead.join("w1", "w2", "w3")
    async with lead.running():
        await lead.push("w1")
        await lead.push("w2")
        await lead.committed(1)
    assert lead.directory.committed_version() == 1


async def test_round_without_its_quorum_opens_again_and_keeps_what_it_has(lead: Lead) -> None:
    await lead.join("w1", "w2", "w3")
    async with lead.running():
        await lead.push("w1")
        await lead.status(lambda now: "reopens" in now["reason"])
        await lead.push("w2")
        await lead.committed(1)


async def test_last_round_ends_the_run(lead: Lead) -> None:
    await lead.join("w1", "w2", "w3")
    async with lead.running() as running:
        for version in (1, 2):
            for worker in ("w1", "w2", "w3"):
                await lead.push(worker)
            await lead.committed(version)
        assert lead.leading.publisher.published.is_final
        for worker in ("w1", "w2", "w3"):
            member = lead.leading.members.named(worker)
            assert member is not None
            lead.leading.leave(member)
        async with asyncio.timeout(PATIENCE_S):
            assert await running is Phase.FINISHED
    assert (await lead.push("w1", round=2)).code is ReplyCode.COMMITTED


async def test_silent_worker_is_given_up_however_busy_the_rounds_are(lead_toy: LeadToy) -> None:
    lead = lead_toy(count=1000, quorum=2, soft_deadline_s=0.01)
    lead.begin(worker_lease_s=0.3)
    await lead.join("w1", "w2", "silent")
    async with lead.running(), asyncio.timeout(PATIENCE_S):
        version = 0
        while "silent" in lead.leading.members.present():
            await lead.push("w1")
            await lead.push("w2")
            version += 1
            await lead.committed(version)
        # The others have been heard with every gradient.
        assert set(lead.leading.members.present()) == {"w1", "w2"}


async def test_cancellation_is_obeyed_even_when_something_happens_at_the_same_time(
    lead: Lead,
) -> None:
    async with lead.running() as running:
        await asyncio.sleep(0.05)  # it waits for something to happen
        await lead.join("w1")
        running.cancel()
        await asyncio.wait({running}, timeout=PATIENCE_S)
        assert running.cancelled()


async def test_rows_that_cannot_be_aggregated_are_collected_again_until_the_job_halts(
    lead_toy: LeadToy,
) -> None:
    lead = lead_toy(quorum=3)
    lead.begin()
    await lead.join("w1", "w2", "w3")
    async with lead.running() as running:
        for attempt in range(1, 6):
            await lead.push("w1", float("nan"))
            await lead.push("w2", float("inf"))
            await lead.push("w3")
            now = await lead.status(lambda now: now["phase"] != "aggregating")
            assert now["phase"] == ("halted" if attempt == 5 else "collecting")
        assert await running is Phase.HALTED
    assert lead.leading.status()["reason"].startswith("halted after 5 aborts in a row of round 1: ")
    assert lead.directory.committed_version() == 0


async def test_parameters_are_those_before_the_round_when_its_rows_cannot_be_aggregated(
    lead_toy: LeadToy,
) -> None:
    lead = lead_toy(quorum=3)
    leading: Leading = lead.begin()
    before = leading.publisher.published
    await lead.join("w1", "w2", "w3")
    async with lead.running():
        await lead.push("w1", float("nan"))
        await lead.push("w2", float("nan"))
        await lead.push("w3")
        await lead.status(lambda now: now["phase"] == "collecting")
        for worker in ("w1", "w2", "w3"):
            await lead.push(worker, 0.0)
        await lead.committed(1)
    after = leading.publisher.published
    assert after == replace(before, version=1)
