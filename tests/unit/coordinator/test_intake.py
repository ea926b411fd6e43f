"""Gradients from their first byte to their receipt, at a leader with a real round."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from training.leadership import LIFE, SECOND_LIFE, ArrivingBody, Lead

from pliska.coordinator.intake import Intake
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.replication.recovery import committed
from pliska.coordinator.wire import Receipt, Reply, ReplyCode, Signed, verify
from pliska.discovery import Enrolled, Keyring
from pliska.locks import Backend, StoreUnavailableError

LeadToy = Callable[..., Lead]


@pytest.fixture
async def lead(lead_toy: LeadToy) -> Lead:
    """Lead the first round, with three members of which it needs two."""
    lead = lead_toy(quorum=2)
    lead.begin()
    await lead.join("w1", "w2", "w3")
    return lead


def rows(lead: Lead) -> tuple[str, ...]:
    return lead.leading.intake.buffer.workers


def half(lead: Lead, frame: bytes) -> ArrivingBody:
    """Make a body of which the last bytes of the payload are missing as yet."""
    return ArrivingBody(frame, len(frame) - 8)


def sending(lead: Lead, body: ArrivingBody) -> "asyncio.Task[Reply]":
    return asyncio.create_task(lead.leading.intake.receive(body))


async def test_accepted_gradient_lies_in_its_row_and_has_a_signed_receipt(lead: Lead) -> None:
    reply = await lead.push("w1", 3.0)
    assert reply.code is ReplyCode.ACCEPTED
    (row,) = lead.leading.intake.buffer.filled()
    assert row.worker == "w1"
    assert bool((row.values == 3.0).all())
    assert reply.receipt is not None
    signer = lead.identity.signer
    public = lead.directory.keyring.find(signer.key_id)
    assert public is not None
    receipt = verify(
        Signed.from_bytes(reply.receipt), Receipt, {signer.key_id: public.public_key}.get
    ).message
    assert (receipt.worker, receipt.round, receipt.code) == ("w1", 1, ReplyCode.ACCEPTED)
    assert receipt.payload_root == lead.payload(3.0).root


async def test_gradient_of_another_batch_is_told_the_right_lease_and_its_payload_is_not_read(
    lead: Lead,
) -> None:
    right = lead.lease("w1")
    body = ArrivingBody(lead.frame("w1", lease=lead.lease("w2")))
    payload_bytes = lead.payload().payload_len
    reply = await lead.leading.intake.receive(body)
    assert (reply.code, reply.lease) == (ReplyCode.STALE_LEASE, right)
    assert body.remaining >= payload_bytes
    assert rows(lead) == ()
    assert Reply.from_json(reply.to_json()).lease == right
    assert (await lead.push("w1", lease=right)).code is ReplyCode.ACCEPTED


async def test_contribution_in_the_record_names_the_lease_and_the_cursor_what_is_done(
    lead: Lead,
) -> None:
    leases = {worker: lead.lease(worker) for worker in ("w1", "w2", "w3")}
    async with lead.running():
        for worker, value in (("w1", 1.0), ("w2", 1.0), ("w3", float("nan"))):
            await lead.push(worker, value)
        await lead.committed(1)
    record = committed(Tip.claimed(lead.directory.commit().value), lead.storage).record
    assert {each.worker: each.lease for each in record.contributions} == leases
    assert not record.cursor.is_done(leases["w3"])
    assert record.cursor.is_done(leases["w1"])
    assert record.cursor.is_done(leases["w2"])


class SlowKeyring(Keyring):
    """A keyring that answers when it is told to."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.is_asked = threading.Event()
        self.answer = threading.Event()

    def find(self, key_id: str) -> Enrolled | None:
        self.is_asked.set()
        assert self.answer.wait(10.0)
        return super().find(key_id)


async def test_round_that_ends_while_the_keyring_is_asked_takes_nothing_into_the_next(
    lead: Lead,
) -> None:
    slow = SlowKeyring(lead.directory.backend)
    slow_intake: Intake = replace(lead.leading.intake, keyring=slow)
    async with lead.running():
        late = asyncio.create_task(slow_intake.receive(ArrivingBody(lead.frame("w1"))))
        await asyncio.to_thread(slow.is_asked.wait)
        for worker in ("w1", "w2", "w3"):
            await lead.push(worker, 2.0)
        await lead.committed(1)
        slow.answer.set()
        assert (await late).code is ReplyCode.STALE_ROUND
    assert lead.leading.status()["round"] == 2
    assert rows(lead) == ()


async def test_payload_that_is_late_for_its_round_gives_its_row_back(lead: Lead) -> None:
    body = half(lead, lead.frame("w3"))
    late = sending(lead, body)
    await body.is_waiting.wait()
    assert rows(lead) == ("w3",)
    async with lead.running():
        await lead.push("w1")
        await lead.push("w2")
        lead.leading.leave(lead.leading.members.named("w3"))  # nobody waits for it any more
        reply = await late
        assert reply.code is ReplyCode.STALE_ROUND
        await lead.committed(1)
    body.arrive()
    assert rows(lead) == ()
    head = lead.leading.status()
    assert [each["rounds"] for each in head["workers"] if each["worker"] == "w3"] == []


async def test_second_gradient_freezes_the_slot_of_one_that_is_still_arriving(lead: Lead) -> None:
    body = half(lead, lead.frame("w1", 1.0))
    first = sending(lead, body)
    await body.is_waiting.wait()
    assert (await lead.push("w1", 2.0)).code is ReplyCode.EQUIVOCATION
    body.arrive()
    assert (await first).code is ReplyCode.EQUIVOCATION
    assert rows(lead) == ()


async def test_restarted_worker_ends_the_transfer_of_its_earlier_life(lead: Lead) -> None:
    body = half(lead, lead.frame("w1"))
    dead = sending(lead, body)
    await body.is_waiting.wait()
    await lead.join("w1", incarnation=SECOND_LIFE)
    for worker in ("w2", "w3"):
        lead.leading.leave(lead.leading.members.named(worker))
    # All that the round opened with are gone: it opens again with those that are here now.
    await lead.join("w2")
    again = {"incarnation": SECOND_LIFE}
    assert (await lead.push("w1", **again)).code is ReplyCode.BUSY
    assert (await dead).code is ReplyCode.STALE_ROUND
    assert (await lead.push("w1", **again)).code is ReplyCode.ACCEPTED


async def test_cut_payload_frees_the_slot_and_may_come_again_under_a_new_sequence_number(
    lead: Lead,
) -> None:
    frame = bytearray(lead.frame("w1"))
    frame[-1] ^= 1
    assert (await lead.receive(bytes(frame))).code is ReplyCode.DIGEST
    assert rows(lead) == ()
    assert (await lead.receive(bytes(frame))).code is ReplyCode.REPLAY
    assert (await lead.push("w1")).code is ReplyCode.ACCEPTED


async def test_cancelled_handler_gives_slot_and_row_back(lead: Lead) -> None:
    body = half(lead, lead.frame("w1"))
    handler = sending(lead, body)
    await body.is_waiting.wait()
    handler.cancel()
    await asyncio.wait([handler])
    assert rows(lead) == ()
    assert (await lead.push("w1")).code is ReplyCode.ACCEPTED


async def test_revoked_key_is_out_at_once_and_no_round_waits_for_it(lead: Lead) -> None:
    lead.directory.keyring.revoke("w3", "stolen")
    assert (await lead.push("w3")).code is ReplyCode.KEY_REVOKED
    async with lead.running():
        await lead.push("w1")
        await lead.push("w2")
        await lead.committed(1)
    assert (await lead.push("w3")).code is ReplyCode.NOT_MEMBER


async def test_retry_of_a_gradient_that_was_counted_learns_so(lead: Lead) -> None:
    frame = lead.frame("w1")
    async with lead.running():
        await lead.receive(frame)
        assert (await lead.receive(frame)).code is ReplyCode.DUPLICATE
        await lead.push("w2")
        await lead.push("w3")
        await lead.committed(1)
        assert (await lead.receive(frame)).code is ReplyCode.COMMITTED
        other = lead.frame("w1", 7.0, round=1)
        assert (await lead.receive(other)).code is ReplyCode.STALE_ROUND


@pytest.mark.parametrize("value", [1.0, float("nan")])
async def test_retry_of_a_settled_gradient_gets_the_receipt_it_got_before(
    lead: Lead, value: float
) -> None:
    frame = lead.frame("w1", value)
    async with lead.running():
        first = await lead.receive(frame)
        again = await lead.receive(frame)
    assert again.code is ReplyCode.DUPLICATE
    assert first.receipt is not None
    assert again.receipt == first.receipt


async def test_stranger_cannot_blacken_a_worker(lead: Lead) -> None:
    forged = bytearray(lead.frame("w1"))
    forged[200] ^= 1  # within the signed header
    await lead.receive(bytes(forged))
    await lead.push("w2", round=99)
    tally = lead.leading.tally
    assert sum(tally.totals().values()) == 2
    assert tally.of_worker("w1") == {}
    assert tally.of_worker("w2") == {}  # refused before its signature was looked at


class LostStore(Keyring):
    def find(self, key_id: str) -> Enrolled | None:
        raise StoreUnavailableError(f"no answer about {key_id}")


async def test_store_that_does_not_answer_makes_the_worker_come_again(lead: Lead) -> None:
    intake = replace(lead.leading.intake, keyring=LostStore(lead.directory.backend))
    reply = await intake.receive(ArrivingBody(lead.frame("w1")))
    assert reply.code is ReplyCode.BUSY
    assert reply.retry_after_s is not None


async def test_buffer_without_a_free_row_makes_the_worker_come_again(lead: Lead) -> None:
    buffer = lead.leading.intake.buffer
    for number in range(buffer.n_max):
        buffer.claim(f"gone-{number}")
    assert (await lead.push("w1")).code is ReplyCode.BUSY
    for row in range(buffer.n_max):
        buffer.release(row)
    assert (await lead.push("w1")).code is ReplyCode.ACCEPTED


async def test_leader_that_lost_its_leadership_accepts_nothing(lead: Lead) -> None:
    async with lead.running():
        await asyncio.sleep(0)
    assert (await lead.push("w1")).code is ReplyCode.STALE_EPOCH
    assert LIFE in lead.leading.members.present().values()
