"""A proof shows a worker its fate by signatures, and nothing else passes for one."""

from dataclasses import replace
from typing import Any

import pytest
from training.records import contribution
from training.signed import (
    KEYS,
    LEADER,
    commit,
    header,
    kept_receipt,
    known,
    receipt,
    signed_header,
    signer,
)

from pliska.coordinator.audit.document import read_document
from pliska.coordinator.audit.proof import Fate, Outcome, Proof, check, prove
from pliska.coordinator.errors import DamagedStateError, NotKeptError
from pliska.coordinator.records.annex import NO_ANNEX, Annex
from pliska.coordinator.records.attendance import Attendance
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.commit import Commit, CommitRecord
from pliska.coordinator.wire import ReplyCode
from pliska.coordinator.wire.encoding import encode
from pliska.discovery import Role

ANNEX = Annex(headers=(signed_header("w1"), signed_header("w2")))
ROUND = commit(
    5,
    contribution("w1", 5, weight=0.5, reason="rank 1"),
    contribution("w2", 5, verdict="outvoted", weight=0.0),
    attendance=Attendance(absent=("w3",), excluded=("w4",)),
)
NEXT = commit(6, previous=ROUND)


def proof_of(worker: str, *receipts: Any) -> Proof:
    return prove(worker, ROUND, ANNEX, NEXT, receipts)


def test_counted_gradient_is_proved_by_its_header_and_the_record_that_names_it() -> None:
    fate = check(proof_of("w1"), KEYS)
    assert fate.outcome is Outcome.COUNTED
    assert fate.contribution is not None
    assert fate.contribution.weight == 0.5
    assert fate.reason == "rank 1"
    assert fate.commit.digest == ROUND.digest
    assert fate.is_built_on


def test_newest_round_has_no_successor_yet() -> None:
    fate = check(prove("w1", ROUND, ANNEX, None, ()), KEYS)
    assert not fate.is_built_on


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ReplyCode.STALE_ROUND, Outcome.LATE),
        (ReplyCode.QUARANTINED, Outcome.QUARANTINED),
        (ReplyCode.SCHEMA, Outcome.REFUSED),
    ],
)
def test_receipt_proves_why_a_gradient_was_not_counted(code: ReplyCode, outcome: Outcome) -> None:
    proof = proof_of("w3", kept_receipt("w3", code, "arrived 0.4 s after round 5 closed"))
    fate = check(proof, KEYS)
    assert fate.outcome is outcome
    assert fate.contribution is None
    assert fate.reason == f"{code}: arrived 0.4 s after round 5 closed"


def test_record_alone_says_who_was_kept_out_and_who_did_not_come() -> None:
    assert check(proof_of("w2"), KEYS).outcome is Outcome.OUTVOTED
    assert check(proof_of("w3"), KEYS).outcome is Outcome.ABSENT
    assert check(proof_of("w4"), KEYS).outcome is Outcome.QUARANTINED


def test_nothing_is_made_up_about_a_stranger() -> None:
    with pytest.raises(NotKeptError, match="nothing is known of worker 'w9'"):
        proof_of("w9")


def test_count_without_the_workers_own_signature_is_no_proof() -> None:
    with pytest.raises(DamagedStateError, match="no signed header of w1"):
        check(prove("w1", ROUND, NO_ANNEX, NEXT, ()), KEYS)


@pytest.mark.parametrize(
    "other",
    [
        signed_header("w1", payload_root=bytes(32)),
        signed_header("w1", incarnation=b"2" * 16),
        signed_header("w1", job="another"),
        signed_header("w2"),
        signer("w2").sign(header("w1")),
    ],
    ids=["root", "incarnation", "job", "worker", "signer"],
)
def test_header_of_another_gradient_is_refused(other: Any) -> None:
    with pytest.raises(DamagedStateError):
        check(replace(proof_of("w1"), header=other), KEYS)


@pytest.mark.parametrize(
    "other",
    [
        receipt("w3", ReplyCode.STALE_ROUND, "", number=4),
        receipt("w3", ReplyCode.STALE_ROUND, "", seq=2),
        receipt("w3", ReplyCode.STALE_ROUND, "", payload_root=bytes(32)),
        receipt("w2", ReplyCode.STALE_ROUND, ""),
        replace(receipt("w3", ReplyCode.STALE_ROUND, ""), key_id=signer("w3").key_id),
    ],
    ids=["round", "sequence", "root", "worker", "signer"],
)
def test_receipt_for_another_message_is_refused(other: Any) -> None:
    proof = proof_of("w3", kept_receipt("w3", ReplyCode.STALE_ROUND, ""))
    with pytest.raises(DamagedStateError):
        check(replace(proof, receipt=other), KEYS)


def rerecorded(commit: Commit, **changes: Any) -> CommitRecord:
    return replace(commit.record, **changes)


@pytest.mark.parametrize(
    "changes",
    [{"previous": bytes(32)}, {"version": 7}, {"epoch": 6}, {"base_digest": bytes(32)}],
)
def test_record_that_does_not_follow_is_no_successor(changes: dict[str, Any]) -> None:
    stray = signer(LEADER).sign(rerecorded(NEXT, **changes))
    with pytest.raises(DamagedStateError, match="does not follow"):
        check(replace(proof_of("w1"), successor=stray), KEYS)


def test_worker_cannot_sign_itself_a_record() -> None:
    forged = signer("w1").sign(ROUND.record)
    with pytest.raises(DamagedStateError):
        check(replace(proof_of("w1"), record=forged, successor=None), KEYS)


def test_revoked_coordinators_past_records_still_prove() -> None:
    keys = KeyBook([known(LEADER, Role.COORDINATOR, revoked="lost"), known("w1")])
    assert check(proof_of("w1"), keys).outcome is Outcome.COUNTED


def checked(content: bytes) -> Fate:
    document = read_document(content)
    assert isinstance(document, Proof)
    return check(document, KEYS)


def test_no_byte_of_a_proof_can_be_changed() -> None:
    content = encode(proof_of("w3", kept_receipt("w3", ReplyCode.STALE_ROUND, "late")))
    assert checked(content).outcome is Outcome.LATE
    for position in range(0, len(content), 5):
        altered = bytearray(content)
        altered[position] ^= 0x04
        with pytest.raises(DamagedStateError):
            checked(bytes(altered))


@pytest.mark.parametrize("content", [b"", b"\0", b"pliska", bytes(400), b"\xff" * 400])
def test_something_else_is_no_document(content: bytes) -> None:
    with pytest.raises(DamagedStateError, match="neither a proof nor evidence"):
        read_document(content)
