"""The checks of a header before any payload is read."""

from dataclasses import replace
from typing import Any

import pytest
from training.records import contribution, counted, digest_of, record, root_of

from pliska.coordinator.admission import (
    Acceptable,
    refuse_key,
    refuse_unverified,
    refuse_verified,
)
from pliska.coordinator.members import Member
from pliska.coordinator.records.recent_rounds import RecentRounds
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.wire import CodecSpec, GradientHeader, ReplyCode
from pliska.discovery import Enrolled, Keyring, Role, key_id, new_private_key, public_bytes
from pliska.locks import connect

LIFE, ANOTHER = b"1" * 16, b"2" * 16
KEY = "ed25519:" + "a" * 32
ROOT = root_of("w1", 3)
MEMBER = Member("w1", LIFE, KEY, "token", heard_at=0.0, seq=5)
RECENT = RecentRounds(1, digest_of(1))
RECENT.add(counted(2, ["w9"]))
RECENT.add(record(3, [contribution("w1", 3), contribution("w2", 3, verdict="refused")]))
ACCEPTABLE = Acceptable(
    job="toy",
    epoch=7,
    round=4,
    mode="synchronous",
    mode_epoch=0,
    base_version=3,
    base_digest=digest_of(3),
    lag_max=0,
    recent=RECENT,
    committed_round=3,
    slot_taken_by=frozenset(),
)
RIGHT = GradientHeader(
    job="toy",
    epoch=7,
    round=4,
    mode_epoch=0,
    base_version=3,
    base_digest=digest_of(3),
    worker="w1",
    incarnation=LIFE,
    key_id=KEY,
    seq=6,
    nonce=bytes(16),
    issued_at=0.0,
    lease=9,
    n_samples=1,
    codec=CodecSpec("float32"),
    manifest_digest=bytes(32),
    payload_len=4,
    chunk_len=1,
    payload_root=ROOT,
)


def test_right_header_is_not_refused() -> None:
    assert refuse_unverified(RIGHT, KEY, MEMBER, ACCEPTABLE) is None
    assert refuse_verified(RIGHT, MEMBER.seq, ACCEPTABLE) is None


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"job": "other"}, ReplyCode.SCHEMA),
        ({"epoch": 6}, ReplyCode.STALE_EPOCH),
        ({"epoch": 8}, ReplyCode.STALE_EPOCH),
        ({"round": 3}, ReplyCode.COMMITTED),
        ({"round": 3, "payload_root": bytes(32)}, ReplyCode.STALE_ROUND),
        ({"round": 2}, ReplyCode.STALE_ROUND),
        ({"round": 5}, ReplyCode.FUTURE_ROUND),
        ({"mode_epoch": 1}, ReplyCode.STALE_MODE),
        ({"base_version": 2}, ReplyCode.WRONG_BASE),
        ({"base_digest": b"x" * 32}, ReplyCode.WRONG_BASE),
        ({"incarnation": ANOTHER}, ReplyCode.OLD_INCARNATION),
        ({"key_id": "ed25519:" + "b" * 32}, ReplyCode.BAD_SIG),
    ],
)
def test_each_field_that_does_not_fit_has_its_reply(wrong: dict[str, Any], code: ReplyCode) -> None:
    refusal = refuse_unverified(replace(RIGHT, **wrong), KEY, MEMBER, ACCEPTABLE)
    assert refusal is not None
    assert refusal.code is code
    assert refusal.reason


def test_checks_run_in_the_protocols_order() -> None:
    """A header that is wrong in every way loses one fault at a time, and shows the next."""
    faults: list[tuple[dict[str, Any], ReplyCode]] = [
        ({"job": "other"}, ReplyCode.SCHEMA),
        ({"epoch": 6}, ReplyCode.STALE_EPOCH),
        ({"round": 5}, ReplyCode.FUTURE_ROUND),
        ({"mode_epoch": 1}, ReplyCode.STALE_MODE),
        ({"base_version": 2}, ReplyCode.WRONG_BASE),
        ({"incarnation": ANOTHER}, ReplyCode.OLD_INCARNATION),
        ({"key_id": "other"}, ReplyCode.BAD_SIG),
    ]
    for first in range(len(faults)):
        wrong = {name: value for fault, _ in faults[first:] for name, value in fault.items()}
        refusal = refuse_unverified(replace(RIGHT, **wrong), KEY, MEMBER, ACCEPTABLE)
        assert refusal is not None
        assert refusal.code is faults[first][1]


def test_worker_that_has_not_joined_is_not_a_member() -> None:
    refusal = refuse_unverified(RIGHT, KEY, None, ACCEPTABLE)
    assert refusal is not None
    assert refusal.code is ReplyCode.NOT_MEMBER


def test_envelope_that_claims_another_key_than_the_members_is_refused() -> None:
    refusal = refuse_unverified(RIGHT, "another", MEMBER, ACCEPTABLE)
    assert refusal is not None
    assert refusal.code is ReplyCode.BAD_SIG


@pytest.mark.parametrize("seq", [4, 5])
def test_used_sequence_number_is_a_replay_unless_the_slot_knows_better(seq: int) -> None:
    header = replace(RIGHT, seq=seq)
    refusal = refuse_verified(header, MEMBER.seq, ACCEPTABLE)
    assert refusal is not None
    assert refusal.code is ReplyCode.REPLAY
    taken = replace(ACCEPTABLE, slot_taken_by=frozenset({"w1"}))
    assert refuse_verified(header, MEMBER.seq, taken) is None


def enrolled(keyring: Keyring, name: str, role: Role) -> Enrolled:
    return keyring.enroll(name, role, public_bytes(new_private_key()))


def test_only_an_active_workers_key_of_that_name_may_speak_for_a_worker() -> None:
    keyring = Keyring(connect("memory:"))
    worker = enrolled(keyring, "w1", Role.WORKER)
    coordinator = enrolled(keyring, "c1", Role.COORDINATOR)
    assert refuse_key(worker, "w1") is None
    for key, name, code in [
        (None, "w1", ReplyCode.NOT_MEMBER),
        (worker, "w2", ReplyCode.BAD_SIG),
        (coordinator, "c1", ReplyCode.BAD_SIG),
        (keyring.revoke("w1", "lost"), "w1", ReplyCode.KEY_REVOKED),
    ]:
        refusal = refuse_key(key, name)
        assert refusal is not None
        assert refusal.code is code
    assert key_id(worker.public_key) == worker.key_id


STALE_TOLERANT = replace(ACCEPTABLE, mode="hybrid", lag_max=2)


def made_for(round_number: int, worker: str = "w1", **changes: Any) -> GradientHeader:
    """The header of a gradient that was computed on the version before this round."""
    right = {
        "round": round_number,
        "base_version": round_number - 1,
        "base_digest": digest_of(round_number - 1),
        "payload_root": root_of(worker, round_number),
        "worker": worker,
    }
    return replace(RIGHT, **{**right, **changes})


def code_of(header: GradientHeader, acceptable: Acceptable) -> ReplyCode | None:
    member = replace(MEMBER, worker=header.worker)
    refusal = refuse_unverified(header, KEY, member, acceptable)
    return refusal.code if refusal else None


def test_older_gradient_is_taken_within_the_bound_and_no_further() -> None:
    assert code_of(made_for(3, "w3"), STALE_TOLERANT) is None
    assert code_of(made_for(2, "w3"), STALE_TOLERANT) is None
    next_round = replace(STALE_TOLERANT, round=5)  # round 4 is being aggregated
    assert code_of(made_for(3, "w3"), next_round) is None
    assert code_of(made_for(2, "w3"), next_round) is ReplyCode.STALE_ROUND


def test_older_gradient_that_was_counted_is_never_counted_again() -> None:
    assert code_of(made_for(3), STALE_TOLERANT) is ReplyCode.COMMITTED
    assert code_of(made_for(3, payload_root=bytes(32)), STALE_TOLERANT) is ReplyCode.STALE_ROUND
    assert code_of(made_for(3, "w2"), STALE_TOLERANT) is ReplyCode.STALE_ROUND  # it was refused
    not_durable = replace(STALE_TOLERANT, committed_round=2)
    assert code_of(made_for(3), not_durable) is ReplyCode.DUPLICATE


def test_older_gradient_must_be_of_the_version_it_says() -> None:
    forked = made_for(3, "w3", base_digest=bytes(32))
    assert code_of(forked, STALE_TOLERANT) is ReplyCode.WRONG_BASE
    assert code_of(made_for(3, "w3", base_version=1), STALE_TOLERANT) is ReplyCode.WRONG_BASE


def test_base_that_this_leader_does_not_remember_is_too_old_whatever_the_mode_allows() -> None:
    patient = replace(STALE_TOLERANT, lag_max=60)
    assert code_of(made_for(1, "w3"), patient) is ReplyCode.STALE_ROUND


def test_gradient_on_an_undone_version_is_refused_whatever_the_mode_allows() -> None:
    recent = RecentRounds(3, digest_of(3))
    rollback = Rollback(target=1, record_digest=bytes(32), actor="ann", reason="poison")
    recent.add(record(4, parameters_digest=digest_of(1), rollback=rollback))
    patient = replace(STALE_TOLERANT, recent=recent, lag_max=60, base_version=4, round=5)
    refusal = refuse_unverified(made_for(4, "w3"), KEY, replace(MEMBER, worker="w3"), patient)
    assert refusal is not None
    assert refusal.code is ReplyCode.STALE_ROUND
    assert refusal.reason == "version 3 is undone: version 4 rolled the job back"
    # The very parameters of the target, downloaded before: another version, another slot.
    assert code_of(made_for(2, "w3"), patient) is ReplyCode.STALE_ROUND
    assert code_of(made_for(5, "w3", base_digest=digest_of(1)), patient) is None


def test_reply_to_a_message_of_another_mode_comes_only_where_the_gradient_is_of_use() -> None:
    switched = replace(STALE_TOLERANT, mode_epoch=1)
    assert code_of(made_for(3, "w3"), switched) is ReplyCode.STALE_MODE
    back = replace(ACCEPTABLE, mode_epoch=2)
    assert code_of(made_for(3, "w3"), back) is ReplyCode.STALE_ROUND


def test_worker_that_is_too_frequent_is_asked_to_come_again() -> None:
    crowded = replace(STALE_TOLERANT, too_frequent=frozenset({"w1"}))
    refusal = refuse_verified(RIGHT, MEMBER.seq, crowded)
    assert refusal is not None
    assert refusal.code is ReplyCode.BUSY
    assert refuse_verified(made_for(4, "w3"), MEMBER.seq, crowded) is None
    taken = replace(crowded, slot_taken_by=frozenset({"w1"}))
    assert refuse_verified(RIGHT, MEMBER.seq, taken) is None
