"""Rounds of all modes at a leader with real parts: gradients pushed by hand, through failovers."""

import asyncio
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from training.leadership import LIFE, PATIENCE_S, ArrivingBody, Lead

from pliska.coordinator import intake
from pliska.coordinator.records.commit import CommitRecord
from pliska.coordinator.records.history import committed_history
from pliska.coordinator.records.mode import Mode
from pliska.coordinator.wire import Reply, ReplyCode

LeadToy = Callable[..., Lead]
WORKERS = ("w1", "w2", "w3", "w4")
TRIMMED = 'name = "trimmed-mean", f = 1'


def lead_in(lead_toy: LeadToy, mode: Mode, name: str = "c1", buffers: int = 3) -> Lead:
    more = f'[mode]\nstart = "{mode}"\n[asynchronous]\nbuffers = {buffers}\n'
    times = {"soft_deadline_s": 0.5, "deadline_s": 5.0}
    lead = lead_toy(name, count=1000, workers=4, quorum=3, rule=TRIMMED, more=more, **times)
    lead.begin()
    return lead


async def push(lead: Lead, worker: str, made_for: int, value: float = 1.0) -> Reply:
    """Send the gradient that a worker made for a round, the same one each time."""
    return await lead.receive(frame(lead, worker, made_for, value))


def frame(lead: Lead, worker: str, made_for: int, value: float = 1.0) -> bytes:
    digest = lead.leading.intake.driver.acceptable().recent.digest_of(made_for - 1)
    changes = {"round": made_for, "base_version": made_for - 1, "base_digest": digest}
    return lead.frame(worker, value, **changes)


def records(lead: Lead) -> list[CommitRecord]:
    commits = committed_history(lead.directory, str(lead.folder / "storage"))
    return [commit.record for commit in commits]


def counted(lead: Lead) -> Counter[tuple[str, int]]:
    """How often each slot is named by a record."""
    return Counter((e.worker, r.round - e.lag) for r in records(lead) for e in r.contributions)


async def run_round(lead: Lead, number: int, workers: tuple[str, ...] = WORKERS[:3]) -> None:
    for worker in workers:
        assert (await push(lead, worker, number)).code is ReplyCode.ACCEPTED
    await lead.committed(number)


@pytest.mark.parametrize("mode", [Mode.HYBRID, Mode.ASYNCHRONOUS])
async def test_late_gradient_counts_once_however_often_it_is_sent(
    lead_toy: LeadToy, mode: Mode
) -> None:
    lead = lead_in(lead_toy, mode)
    await lead.join(*WORKERS)
    async with lead.running():
        await run_round(lead, 1)
        await run_round(lead, 2)
        late = frame(lead, "w4", 1)
        assert (await lead.receive(late)).code is ReplyCode.ACCEPTED
        assert (await lead.receive(late)).code is ReplyCode.DUPLICATE
        for worker in ("w1", "w2", "w3"):
            await push(lead, worker, 3)
        await lead.committed(3)
        await lead.committed(3)
        assert (await lead.receive(late)).code in {ReplyCode.COMMITTED, ReplyCode.DUPLICATE}
    assert counted(lead)["w4", 1] == 1
    assert max(counted(lead).values()) == 1
    (made,) = [e for r in records(lead) for e in r.contributions if e.worker == "w4"]
    assert (made.lag, made.damping) == (2, 3**-0.5)


async def test_new_leader_does_not_count_again_what_the_last_one_counted_late(
    lead_toy: LeadToy,
) -> None:
    first = lead_in(lead_toy, Mode.HYBRID)
    await first.join(*WORKERS)
    async with first.running():
        await run_round(first, 1)
        await push(first, "w4", 1)
        for worker in ("w1", "w2"):
            await push(first, worker, 2)
        await first.committed(2)
    first.grant.resign()
    second = lead_in(lead_toy, Mode.HYBRID, "c2")
    await second.join(*WORKERS)
    async with second.running():
        # The worker never heard of the commit: it signs the same gradient for the new leader.
        assert (await push(second, "w4", 1)).code is ReplyCode.COMMITTED
        assert (await push(second, "w4", 1, value=5.0)).code is ReplyCode.STALE_ROUND
        # One that was not counted is welcome still.
        assert (await push(second, "w3", 2)).code is ReplyCode.ACCEPTED
        for worker in ("w1", "w2"):
            await push(second, worker, 3)
        await second.committed(3)
    assert max(counted(second).values()) == 1
    assert counted(second)["w4", 1] == counted(second)["w3", 2] == 1


async def test_gradient_beyond_the_bound_is_stale_and_its_payload_is_not_read(
    lead_toy: LeadToy,
) -> None:
    lead = lead_in(lead_toy, Mode.HYBRID)
    await lead.join(*WORKERS)
    async with lead.running():
        for number in range(1, 11):
            await run_round(lead, number)
        message = frame(lead, "w4", 2)
        body = ArrivingBody(message, len(message) - 8)
        reply = await lead.leading.intake.receive(body)
        assert reply.code is ReplyCode.STALE_ROUND
        assert "at most 8 versions old" in reply.reason
        assert body.remaining > 8
        assert (await push(lead, "w4", 3)).code is ReplyCode.ACCEPTED


async def test_gradient_goes_on_arriving_while_rounds_close_and_open(lead_toy: LeadToy) -> None:
    lead = lead_in(lead_toy, Mode.HYBRID)
    await lead.join(*WORKERS)
    async with lead.running():
        message = frame(lead, "w4", 1)
        body = ArrivingBody(message, len(message) - 8)
        slow = asyncio.create_task(lead.leading.intake.receive(body))
        await body.is_waiting.wait()
        await run_round(lead, 1)
        await run_round(lead, 2)
        body.arrive()
        assert (await slow).code is ReplyCode.ACCEPTED
        for worker in ("w1", "w2"):
            await push(lead, worker, 3)
        await lead.committed(3)
    assert counted(lead)["w4", 1] == 1


async def test_message_of_the_old_mode_is_told_the_new_one_and_signed_again_it_counts(
    lead_toy: LeadToy,
) -> None:
    lead = lead_in(lead_toy, Mode.SYNCHRONOUS)
    await lead.join(*WORKERS)
    async with lead.running():
        old = frame(lead, "w1", 1)
        lead.directory.switch_mode(lead.job, Mode.HYBRID, "a test")
        for worker in WORKERS:
            await push(lead, worker, 1)
        await lead.status(lambda now: now["mode"]["asked_for"] == "hybrid")
        await lead.committed(1)
        if lead.leading.status()["mode"]["mode"] != "hybrid":
            for worker in WORKERS:
                await push(lead, worker, 2)
            await lead.committed(2)
        number = lead.leading.status()["round"]
        stale = lead.frame("w4", 9.0, mode_epoch=0)
        reply = await lead.receive(stale)
        assert reply.code is ReplyCode.STALE_MODE
        assert (reply.mode, reply.mode_epoch) == ("hybrid", 1)
        again = await lead.push("w4", 9.0, mode_epoch=reply.mode_epoch)
        assert again.code is ReplyCode.ACCEPTED
        assert (await lead.receive(old)).code is ReplyCode.COMMITTED
    assert [record.mode_epoch for record in records(lead)][:1] == [0]
    assert number == lead.leading.status()["round"]


async def test_switch_back_ends_what_is_in_flight_and_opens_with_everybody(
    lead_toy: LeadToy,
) -> None:
    lead = lead_in(lead_toy, Mode.HYBRID)
    await lead.join(*WORKERS)
    async with lead.running():
        await run_round(lead, 1)
        message = frame(lead, "w4", 1)
        body = ArrivingBody(message, len(message) - 8)
        in_flight = asyncio.create_task(lead.leading.intake.receive(body))
        await body.is_waiting.wait()
        lead.directory.switch_mode(lead.job, Mode.SYNCHRONOUS, "a test")
        await lead.status(lambda now: now["mode"]["asked_for"] == "synchronous")
        await run_round(lead, 2)
        await lead.status(lambda now: now["mode"]["mode"] == "synchronous")
        body.arrive()
        assert (await in_flight).code is ReplyCode.STALE_ROUND
        assert (await push(lead, "w4", 1)).code is ReplyCode.STALE_ROUND
        for worker in WORKERS:
            assert (await push(lead, worker, 3)).code is ReplyCode.ACCEPTED
        await lead.committed(3)
    assert [record.mode for record in records(lead)] == ["hybrid", "hybrid", "synchronous"]
    assert {each.lag for each in records(lead)[-1].contributions} == {0}


async def test_new_leader_goes_on_in_the_mode_that_the_store_has(lead_toy: LeadToy) -> None:
    first = lead_in(lead_toy, Mode.SYNCHRONOUS)
    first.directory.switch_mode(first.job, Mode.HYBRID, "a test")
    first.grant.resign()
    second = lead_in(lead_toy, Mode.SYNCHRONOUS, "c2")
    await second.join(*WORKERS)
    async with second.running():
        await run_round(second, 1)
    (record,) = records(second)
    assert (record.mode, record.mode_epoch) == ("hybrid", 1)


async def test_worker_that_sends_ten_times_as_often_is_not_most_of_the_updates(
    lead_toy: LeadToy,
) -> None:
    lead = lead_in(lead_toy, Mode.ASYNCHRONOUS, buffers=1)
    await lead.join(*WORKERS)
    async with lead.running(), asyncio.timeout(PATIENCE_S):
        await run_round(lead, 1)  # the rule primes the filter
        pushes = {asyncio.create_task(keep_pushing(lead, w, 0.05)) for w in WORKERS[1:]}
        pushes.add(asyncio.create_task(keep_pushing(lead, "w1", 0.005)))
        await lead.committed(25)
        for each in pushes:
            each.cancel()
        await asyncio.gather(*pushes, return_exceptions=True)
    made = records(lead)
    kept = [e.worker for r in made for e in r.contributions if e.verdict == "kept"][3:]
    assert {record.rule for record in made[1:]} >= {"kardam"}
    assert Counter(kept)["w1"] <= 0.5 * len(kept)
    assert max(counted(lead).values()) == 1


async def keep_pushing(lead: Lead, worker: str, pause_s: float) -> None:
    """Send the gradient for the newest version again and again, as workers do that are recalled.

    All its numbers are the version's first one: it changes as the model does.
    """
    while True:
        published = lead.leading.publisher.published
        slope = float(np.frombuffer(published.parameters, dtype="<f4")[0])
        await push(lead, worker, published.version + 1, slope)
        await asyncio.sleep(pause_s)


async def test_round_below_what_the_filter_needs_waits_with_the_reason(
    lead_toy: LeadToy,
) -> None:
    lead = lead_in(lead_toy, Mode.ASYNCHRONOUS, buffers=1)
    await lead.join(*WORKERS[:3])
    async with lead.running():
        now = await lead.status(lambda now: "n >= 3f + 1" in now["reason"])
        assert now["phase"] == "waiting"
        assert (await push(lead, "w1", 1)).code is ReplyCode.BUSY
    assert LIFE in lead.leading.members.present().values()


async def test_gradient_that_must_wait_is_taken_when_the_next_round_opens_and_sent_once(
    lead_toy: LeadToy,
) -> None:
    lead = lead_in(lead_toy, Mode.HYBRID)
    await lead.join(*WORKERS)
    async with lead.running():
        await run_round(lead, 1)
        assert (await push(lead, "w4", 1)).code is ReplyCode.ACCEPTED
        waiting = asyncio.create_task(push(lead, "w4", 2))  # its earlier one comes first
        await asyncio.sleep(0.05)
        assert not waiting.done()
        for worker in ("w1", "w2"):
            await push(lead, worker, 2)
        assert (await waiting).code is ReplyCode.ACCEPTED
    assert lead.leading.tally.of_worker("w4") == {"ACCEPTED": 2}


async def test_gradient_waits_at_the_door_no_longer_than_it_may(
    lead_toy: LeadToy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "DOOR_S", 0.05)
    lead = lead_in(lead_toy, Mode.HYBRID)
    await lead.join(*WORKERS)
    async with lead.running():
        await run_round(lead, 1)
        await push(lead, "w4", 1)
        reply = await push(lead, "w4", 2)
    assert reply.code is ReplyCode.BUSY
    assert reply.retry_after_s is not None
