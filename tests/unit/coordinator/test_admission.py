"""The checks of a header before any payload is read."""

from dataclasses import replace
from typing import Any

import pytest

from pliska.coordinator.admission import (
    Acceptable,
    refuse_key,
    refuse_unverified,
    refuse_verified,
)
from pliska.coordinator.members import Member
from pliska.coordinator.wire import CodecSpec, GradientHeader, ReplyCode
from pliska.discovery import Enrolled, Keyring, Role, key_id, new_private_key, public_bytes
from pliska.locks import connect

LIFE, ANOTHER = b"1" * 16, b"2" * 16
KEY = "ed25519:" + "a" * 32
ROOT = b"r" * 32
MEMBER = Member("w1", LIFE, KEY, "token", heard_at=0.0, seq=5)
ACCEPTABLE = Acceptable(
    job="toy",
    epoch=7,
    round=4,
    mode="synchronous",
    mode_epoch=0,
    base_version=3,
    base_digest=bytes(32),
    closed={3: {"w1": ROOT}},
    slot_taken_by=frozenset(),
)
RIGHT = GradientHeader(
    job="toy",
    epoch=7,
    round=4,
    mode_epoch=0,
    base_version=3,
    base_digest=bytes(32),
    worker="w1",
    incarnation=LIFE,
    key_id=KEY,
    seq=6,
    nonce=bytes(16),
    issued_at=0.0,
    lease_ids=(),
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
        ({"mode_epoch": 1}, ReplyCode.STALE_ROUND),
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
        ({"mode_epoch": 1}, ReplyCode.STALE_ROUND),
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
