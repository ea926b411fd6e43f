"""What a leadership writes down while its rounds go on, and what comes of it."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from training.audited import KEEPING, Audited, lie
from training.leadership import Lead

from pliska.aggregation import flipped_labels
from pliska.coordinator.audit_trail import REMEMBERED_MAX, AuditTrail
from pliska.coordinator.docket import Docket
from pliska.coordinator.errors import StorageFullError
from pliska.coordinator.records.evidence import charge
from pliska.coordinator.records.evidence_store import EvidenceStore
from pliska.coordinator.records.payloads import PayloadStore
from pliska.coordinator.records.receipts import ReceiptStore
from pliska.coordinator.records.standing import StandingState
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire import ReplyCode

LeadToy = Callable[..., Lead]
WORKERS = ("w1", "w2", "w3", "w4", "w5", "w6")
SIX = {"workers": 6, "quorum": 5, "rule": 'name = "multi-krum", f = 1'}
HASTY = {**SIX, "soft_deadline_s": 0.05}
"""Its rounds close with the fifth gradient, once they are so old."""


async def begun(lead: Lead, *workers: str) -> Audited:
    lead.begin()
    await lead.join(*(workers or WORKERS))
    return Audited(lead)


def evidence_of(job: Audited) -> list[tuple[str, str]]:
    store = EvidenceStore(job.lead.storage, "toy")
    charges = [charge(store.read(name).evidence, job.keys) for name in store.names()]
    return [(each.kind, each.offender) for each in charges]


async def test_equivocation_is_kept_convicts_and_keeps_its_worker_out(lead_toy: LeadToy) -> None:
    job = await begun(lead_toy(**SIX))
    d = job.computation.dimension
    async with job.lead.running():
        await job.push("w6", lie(d, 1))
        assert (await job.push("w6", lie(d, 2))).code is ReplyCode.EQUIVOCATION
        assert (await job.push("w6", lie(d, 3))).code is ReplyCode.EQUIVOCATION
        await job.settled()
        await job.round("w1", "w2", "w3", "w4", "w5")
        assert evidence_of(job) == [("equivocation", "w6")]  # one of a round is enough
        record = job.commits()[-1].record
        (conviction,) = record.convictions
        assert (conviction.worker, conviction.offence) == ("w6", "equivocation")
        (change,) = record.changes
        assert change.after is StandingState.QUARANTINE
        reply = await job.push("w6")
        assert reply.code is ReplyCode.QUARANTINED
        assert "in quarantine since round 1" in reply.reason
        await job.round("w1", "w2", "w3", "w4", "w5")
    assert job.commits()[-1].record.attendance.excluded == ("w6",)
    assert job.commits()[-1].record.convictions == ()
    receipts = ReceiptStore(job.lead.storage, "toy").of_round(2)
    assert [(each.claim.worker, each.claim.code) for each in receipts] == [
        ("w6", ReplyCode.QUARANTINED)
    ]


async def test_another_gradient_after_the_first_was_counted_convicts_too(
    lead_toy: LeadToy,
) -> None:
    job = await begun(lead_toy(**HASTY))
    async with job.lead.running():
        await job.lead.status(lambda now: now["phase"] == "collecting")
        second = job.lead.frame("w6", lie(job.computation.dimension, 9), seq=99)  # type: ignore[arg-type]
        await job.round("w6", "w1", "w2", "w3", "w4")
        assert (await job.lead.receive(second)).code is ReplyCode.STALE_ROUND
        await job.settled()
        assert evidence_of(job) == [("equivocation", "w6")]


async def test_new_leader_goes_on_from_the_standings_and_from_evidence_that_no_record_has(
    lead_toy: LeadToy,
) -> None:
    first = await begun(lead_toy(**SIX))
    d = first.computation.dimension
    async with first.lead.running():
        await first.push("w6", lie(d, 1))
        await first.push("w6", lie(d, 2))
        await first.settled()
        await first.round("w1", "w2", "w3", "w4", "w5")
        # Another one lies in the open round, and the leader dies.
        await first.push("w5", lie(d, 1))
        await first.push("w5", lie(d, 2))
        await first.settled()
    first.lead.close()
    second = await begun(lead_toy("c2", **SIX))
    standings = second.lead.leading._stepper.standings
    assert standings["w6"].state is StandingState.QUARANTINE
    assert standings["w5"].state is StandingState.GOOD
    async with second.lead.running():
        await second.lead.status(lambda now: now["phase"] == "collecting")
        for worker in WORKERS[:5]:
            await second.push(worker)
        await second.lead.committed(2)
    (conviction,) = second.commits()[-1].record.convictions
    assert conviction.worker == "w5"


async def test_damaged_evidence_does_not_keep_a_new_leader_from_leading(lead_toy: LeadToy) -> None:
    lead = lead_toy(**SIX)
    folder = lead.folder / "storage/jobs/toy/evidence"
    folder.mkdir(parents=True)
    (folder / f"{1:012d}-equivocation-{'0' * 64}.evidence").write_bytes(b"rubbish")
    await begun(lead)


async def test_flipped_labels_are_found_by_computing_them_again_and_honest_work_is_not(
    lead_toy: LeadToy,
) -> None:
    job = await begun(lead_toy(**SIX, more="[audit]\nrecompute = 1.0"))

    def flipped() -> np.ndarray:
        job.gradient("w6")  # takes the published parameters
        return job.computation.gradient(
            job.lead.lease("w6"),
            lambda targets: flipped_labels(targets, 3),
        ).numpy()

    async with job.lead.running():
        await job.lead.status(lambda now: now["phase"] == "collecting")
        await job.round(*WORKERS, lies={"w6": flipped()})
        await job.settled()
        assert evidence_of(job) == [("miscomputation", "w6")]
        await job.round(*WORKERS)
        await job.settled()
    record = job.commits()[-1].record
    assert [each.worker for each in record.convictions] == ["w6"]
    assert evidence_of(job) == [("miscomputation", "w6")]


async def test_kept_gradients_of_old_rounds_go(lead_toy: LeadToy) -> None:
    job = await begun(lead_toy(**SIX, more="[audit]\nkeep_rounds = 2"))
    async with job.lead.running():
        for _ in range(4):
            await job.round(*WORKERS)
        await job.settled()
    kept = PayloadStore(job.lead.storage, "toy").names()
    assert sorted({name.split("/")[3] for name in kept}) == ["000000000003", "000000000004"]
    assert len(kept) == 12


async def test_nothing_is_kept_where_the_job_does_not_ask_for_it(lead_toy: LeadToy) -> None:
    job = await begun(lead_toy(**SIX))
    async with job.lead.running():
        await job.round(*WORKERS)
        await job.settled()
    assert PayloadStore(job.lead.storage, "toy").names() == []
    assert len(job.log.head(1, job.commits()[0].digest).annex.headers) == 6


class HeldStorage(LocalStorage):
    """Writes gradients when it is told to, or never."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.go_on = threading.Event()
        self.is_full = False

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        if "/payloads/" in name:
            assert self.go_on.wait(20.0)
            if self.is_full:
                raise StorageFullError("no space left")
        super().write(name, chunks)


async def test_rows_are_not_given_back_before_they_are_written(lead_toy: LeadToy) -> None:
    lead = lead_toy(**SIX, more=KEEPING)
    storage = HeldStorage(lead.folder / "storage")
    lead.storage = storage
    job = await begun(lead)
    async with lead.running():
        await lead.status(lambda now: now["phase"] == "collecting")
        for worker in WORKERS:
            await job.push(worker)
        await lead.status(lambda now: now["phase"] == "committing")
        await asyncio.sleep(0.1)
        assert lead.leading.publisher.published.version == 0
        assert len(lead.leading.intake.buffer.filled()) == 6
        storage.go_on.set()
        await lead.committed(1)
        await job.settled()
    assert len(PayloadStore(storage, "toy").names()) == 6


async def test_full_disk_stops_no_round(
    lead_toy: LeadToy, caplog: pytest.LogCaptureFixture
) -> None:
    lead = lead_toy(**SIX, more=KEEPING)
    storage = HeldStorage(lead.folder / "storage")
    storage.is_full = True
    storage.go_on.set()
    lead.storage = storage
    job = await begun(lead)
    async with lead.running():
        await job.round(*WORKERS)
    assert "not written down for audits: no space left" in caplog.text


async def test_late_gradient_has_a_receipt_that_says_how_late_and_only_one(
    lead_toy: LeadToy,
) -> None:
    job = await begun(lead_toy(**HASTY))
    async with job.lead.running():
        await job.lead.status(lambda now: now["phase"] == "collecting")
        frames = [job.lead.frame("w6", seq=seq) for seq in (11, 12)]
        await job.round(*WORKERS[:5])
        first, again = [await job.lead.receive(frame) for frame in frames]
        await job.settled()
    assert (first.code, again.code) == (ReplyCode.STALE_ROUND, ReplyCode.STALE_ROUND)
    assert first.receipt is not None
    assert first.reason.startswith("arrived 0.")
    assert "s after round 1 closed" in first.reason
    assert again.receipt is None
    assert len(ReceiptStore(job.lead.storage, "toy").of_round(1)) == 1


async def test_receipts_travel_with_the_log_in_the_annex_of_the_next_record(
    lead_toy: LeadToy,
) -> None:
    job = await begun(lead_toy(**HASTY))
    async with job.lead.running():
        await job.lead.status(lambda now: now["phase"] == "collecting")
        late = job.lead.frame("w6", seq=11)
        for _ in range(2):
            await job.round(*WORKERS[:5])
        assert (await job.lead.receive(late)).code is ReplyCode.STALE_ROUND
        for _ in range(2):
            await job.round(*WORKERS[:5])
    annexes = [job.log.head(each.record.version, each.digest).annex for each in job.commits()]
    assert [len(annex.receipts) for annex in annexes] == [0, 0, 1, 0]
    (kept,) = annexes[2].receipts
    assert kept == ReceiptStore(job.lead.storage, "toy").of_round(1)[0]
    assert (kept.claim.worker, kept.claim.code) == ("w6", ReplyCode.STALE_ROUND)


async def test_strangers_and_old_lives_get_no_receipt_for_being_late(lead_toy: LeadToy) -> None:
    job = await begun(lead_toy(**HASTY))
    async with job.lead.running():
        await job.lead.status(lambda now: now["phase"] == "collecting")
        forged = job.lead.frame("w6", key_id=job.lead.signer("w1").key_id)
        old = job.lead.frame("w5", incarnation=b"9" * 16)
        await job.round(*WORKERS[:4], "w6")
        for frame in (forged, old):
            reply = await job.lead.receive(frame)
            assert (reply.code, reply.receipt) == (ReplyCode.STALE_ROUND, None)


def test_no_more_is_remembered_than_there_is_room_for(lead_toy: LeadToy) -> None:
    lead = lead_toy()
    trail = AuditTrail(lead.job, lead.storage, lead.identity.signer, Docket())
    for number in range(REMEMBERED_MAX + 1):
        assert trail._is_new("receipt", "w1", number)
    assert len(trail._noted) == REMEMBERED_MAX
    assert not trail.wants_receipt("w1", 1)
    assert trail.wants_receipt("w1", 0)  # forgotten first
