"""An audit of a trained job finds every byte that was changed, and nothing else."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from training.audited import KEEPING, Audited, lie
from training.leadership import Lead

from pliska.coordinator.audit.audit import verify_job
from pliska.coordinator.audit.report import PROBLEMS_MAX, AuditReport
from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.audit_keys import KeyBook, KnownKey
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.evidence import Equivocation, charge, paired
from pliska.coordinator.records.log_entry import LogEntry
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire import ReplyCode
from pliska.coordinator.wire.encoding import encode
from pliska.coordinator.wire.job_tables import Reputation
from pliska.discovery import Role

WORKERS = ("w1", "w2", "w3", "w4", "w5", "w6")
MORE = KEEPING + "[reputation]\nquarantine_rounds = 2\n"


async def trained(lead: Lead) -> Audited:
    """Train five rounds in which somebody is late, somebody lies twice, and somebody is absent."""
    job = Audited(lead)
    lead.begin()
    await lead.join(*WORKERS)
    async with lead.running() as running:
        await lead.status(lambda now: now["phase"] == "collecting")
        late = lead.frame("w5", job.gradient("w5"), seq=1)  # type: ignore[arg-type]
        lead.seq = 1
        await job.push("w6", lie(job.computation.dimension, 1))
        twice = await job.push("w6", lie(job.computation.dimension, 2))
        assert twice.code is ReplyCode.EQUIVOCATION
        await job.settled()
        await job.round("w1", "w2", "w3", "w4")
        assert (await lead.receive(late)).code is ReplyCode.STALE_ROUND
        for _ in range(3):
            await job.round("w1", "w2", "w3", "w4", "w5")
        for worker in ("w1", "w2", "w3", "w4", "w5"):
            await job.push(worker)
        for worker in WORKERS:
            lead.leading.leave(lead.leading.members.named(worker))  # type: ignore[arg-type]
        await running
    return job


@pytest.fixture
def job(lead_toy: Callable[..., Lead]) -> Audited:
    lead = lead_toy(
        count=5,
        workers=6,
        quorum=5,
        rule='name = "multi-krum", f = 1',
        soft_deadline_s=0.05,
        more=MORE,
    )
    return asyncio.run(trained(lead))


def audit(job: Audited, keys: KeyBook | None = None, *, offline: bool = True) -> AuditReport:
    head = None if offline else job.commits()[-1]
    settings = job.lead.job.reputation
    return verify_job(job.lead.storage, "toy", keys or job.keys, head, settings)


def problems(report: AuditReport) -> list[str]:
    return [problem for check in report.checks.values() for problem in check.problems]


def test_job_is_sound_and_each_byte_that_is_changed_is_found(job: Audited) -> None:
    report = audit(job)
    assert problems(report) == []
    assert report.is_sound
    assert report.version == 5
    counts = {what: check.count for what, check in report.checks.items()}
    assert counts["commit records"] == counts["aggregates"] == counts["standings"] == 5
    assert counts["workers' headers"] == 25
    assert counts["evidence"] == counts["convictions"] == 1
    assert counts["receipts"] == 1
    assert counts["kept gradients"] == 25
    assert counts["models"] == counts["job files"] == 1
    assert counts["checkpoints"] >= 1
    assert report.notes == [
        "only the store can say whether version 5 was committed: it was not asked"
    ]

    lots = random.Random(5)
    for path in sorted(path for path in job.files.rglob("*") if path.is_file()):
        content = path.read_bytes()
        position = lots.randrange(len(content))
        altered = bytearray(content)
        altered[position] ^= 1 << lots.randrange(8)
        path.write_bytes(altered)
        is_mark = path.parent.name == "leaders"  # random bytes, which say nothing about rounds
        assert audit(job).is_sound is is_mark, f"byte {position} of {path} (seed 5)"
        path.write_bytes(content)
    assert audit(job, offline=False).is_sound


def test_missing_file_of_the_chain_is_found(job: Audited) -> None:
    for commit in job.commits():
        name = job.log.name(commit.record.version, commit.digest)
        path = job.files / name
        content = path.read_bytes()
        path.unlink()
        report = audit(job)
        if commit.record.version == 5:  # that there was a newer one, only the store knows
            assert report.version == 4
            report = verify_job(job.lead.storage, "toy", job.keys, commit)
        assert any("is missing" in problem for problem in problems(report)), commit.record.version
        path.write_bytes(content)


def test_conviction_rests_on_evidence_that_travels_with_its_record(job: Audited) -> None:
    (file,) = (job.files / "jobs/toy/evidence").iterdir()
    file.unlink()
    assert audit(job).is_sound
    commit = next(each for each in job.commits() if each.record.convictions)
    entry = job.log.read(commit.record.version, commit.digest)
    other = Equivocation(*paired(*entry.annex.headers[:2]))
    for evidence in ((), (encode(other),), (b"\0",)):
        annex = replace(entry.annex, evidence=evidence)
        record = replace(commit.record, annex_digest=annex.digest, epoch=commit.record.epoch + 1)
        forged = Commit.sign(record, job.lead.identity.signer)
        job.log.write(forged, entry.aggregate, annex)
        report = verify_job(job.lead.storage, "toy", job.keys, forged)
        (problem,) = report.checks["convictions"].problems
        assert "without evidence" in problem or "neither a proof" in problem


def test_strangers_keys_prove_nothing(job: Audited) -> None:
    report = audit(job, KeyBook([]))
    assert report.checks["commit records"].failed == 5
    assert report.checks["workers' headers"].failed >= 25


def test_revoked_coordinator_is_noted_and_its_records_stand(job: Audited) -> None:
    keys = [
        KnownKey(each.key_id, each.public_key, each.role, each.name, "stolen")
        if each.role is Role.COORDINATOR
        else KnownKey(each.key_id, each.public_key, each.role, each.name)
        for each in job.lead.directory.keyring.list()
    ]
    report = audit(job, KeyBook(keys))
    assert report.is_sound
    assert any("5 records are signed by" in note and "stolen" in note for note in report.notes)


def test_standings_that_do_not_follow_from_the_rounds_are_found(job: Audited) -> None:
    strict = Reputation(quarantine_rounds=2, outlier=1.0, memory_rounds=1.0)
    report = verify_job(job.lead.storage, "toy", job.keys, None, strict)
    assert report.checks["standings"].failed > 0
    assert verify_job(job.lead.storage, "toy", job.keys).is_sound


def test_leader_that_signs_two_records_for_one_version_is_convicted(job: Audited) -> None:
    commit = job.commits()[2]
    entry = job.log.read(commit.record.version, commit.digest)
    other = Commit.sign(
        replace(commit.record, issued_at=commit.record.issued_at + 1), job.lead.identity.signer
    )
    job.log.write(other, entry.aggregate, entry.annex)
    report = audit(job)
    assert any("signed two records for version 3" in problem for problem in problems(report))
    (fork,) = report.forks
    assert charge(fork, job.keys).offender == job.lead.identity.key_id


def test_entry_of_a_leader_that_lost_its_leadership_is_no_offence(job: Audited) -> None:
    commit = job.commits()[2]
    entry = job.log.read(commit.record.version, commit.digest)
    stale = replace(commit.record, epoch=commit.record.epoch - 1)
    lost = Commit.sign(stale, job.lead.identity.signer)
    job.log.write(lost, entry.aggregate, entry.annex)
    report = audit(job)
    assert report.is_sound
    assert report.checks["entries never committed"].count == 1


def test_chain_of_two_entries_for_the_newest_version_is_the_later_leaders(job: Audited) -> None:
    newest = job.commits()[-1]
    entry = job.log.read(newest.record.version, newest.digest)
    later = Commit.sign(
        replace(newest.record, epoch=newest.record.epoch + 1), job.lead.identity.signer
    )
    LocalStorage(job.files).write(
        job.log.name(5, later.digest), LogEntry(later, entry.aggregate, entry.annex).pieces()
    )
    assert audit(job).head == later.digest
    assert verify_job(job.lead.storage, "toy", job.keys, newest, None).head == newest.digest


def test_files_of_no_known_kind_are_told_and_not_judged(job: Audited, tmp_path: Path) -> None:
    (job.files / "jobs/toy/shopping-list").write_text("eggs")
    report = audit(job)
    assert report.is_sound
    assert any("1 files are of no kind" in note for note in report.notes)


def test_problems_beyond_the_limit_are_counted() -> None:
    report = AuditReport("toy")
    for number in range(PROBLEMS_MAX + 1):
        with report.checking("things"):
            raise DamagedStateError(str(number))
    assert report.checks["things"].failed == PROBLEMS_MAX + 1
    assert len(report.checks["things"].problems) == PROBLEMS_MAX
