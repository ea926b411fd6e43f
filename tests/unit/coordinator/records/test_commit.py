import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from training.records import contribution

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.attendance import Arrival, Attendance
from pliska.coordinator.records.commit import Commit, CommitRecord, cursor_after
from pliska.coordinator.records.data_leases import LEFT_MAX, DataCursor
from pliska.coordinator.records.rollback import Rollback, Undone
from pliska.coordinator.records.standing import Conviction, StandingChange, StandingState
from pliska.coordinator.wire.errors import MalformedError
from pliska.coordinator.wire.limits import MEMBERS_MAX
from pliska.coordinator.wire.messages import Receipt
from pliska.coordinator.wire.reply_codes import ReplyCode
from pliska.coordinator.wire.signing import Signer

CONVICTION = Conviction(worker="w1", offence="equivocation", evidence=bytes(32), reason="twice")
CHANGE = StandingChange(
    worker="w1", before=StandingState.GOOD, after=StandingState.QUARANTINE, reason="twice"
)

ROLLBACK = Rollback(target=1, record_digest=bytes(32), actor="ann", reason="poison")

KeyLookup = Callable[[str], bytes | None]


@pytest.fixture
def signer() -> Signer:
    return Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)), "ed25519:other")


def test_a_commit_comes_back_with_its_digest(commits: list[Commit], leader_key: KeyLookup) -> None:
    again = Commit.verified(commits[1].to_bytes(), "tiny", leader_key)

    assert again == commits[1]
    assert again.digest == commits[1].digest
    assert Commit.expected(commits[1].to_bytes(), commits[1].digest) == commits[1]


def test_every_field_changes_the_digest(commits: list[Commit], signer: Signer) -> None:
    record = commits[0].record
    changes: list[dict[str, Any]] = [
        {"job": "other"},
        {"epoch": 2},
        {"round": 2},
        {"version": 2},
        {"mode": "async"},
        {"mode_epoch": 1},
        {"base_digest": bytes(32)},
        {"parameters_digest": bytes(32)},
        {"state_digest": bytes(32)},
        {"rule": "krum"},
        {"rule_parameters": (("f", "2"),)},
        {"contributions": ()},
        {"cursor": DataCursor(9)},
        {"learning_rate": 0.5},
        {"seed": 9},
        {"aggregate_digest": bytes(32)},
        {"annex_digest": bytes(32)},
        {"attendance": Attendance(absent=("w9",))},
        {"convictions": (CONVICTION,)},
        {"changes": (CHANGE,)},
        {"rollback": ROLLBACK},
        {"undone": (Undone(1, 3),)},
        {"previous": bytes(31) + b"\1"},
        {"issued_at": 1.0},
    ]
    assert {name for change in changes for name in change} == set(CommitRecord.__slots__)

    digests = {Commit.sign(replace(record, **change), signer).digest for change in changes}
    assert len(digests | {commits[0].digest}) == len(changes) + 1


def test_a_flipped_bit_anywhere_is_refused(commits: list[Commit], leader_key: KeyLookup) -> None:
    data = commits[0].to_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        with pytest.raises(DamagedStateError):
            Commit.verified(bytes(damaged), "tiny", leader_key)


def test_a_record_of_another_key_is_refused(
    commits: list[Commit], signer: Signer, leader_key: KeyLookup
) -> None:
    forged = Commit.sign(commits[0].record, signer)

    with pytest.raises(DamagedStateError, match="nobody enrolled the key ed25519:other"):
        Commit.verified(forged.to_bytes(), "tiny", leader_key)
    impostor = replace(forged.signed, key_id=commits[0].signed.key_id)
    with pytest.raises(DamagedStateError, match="signature does not fit"):
        Commit.verified(impostor.to_bytes(), "tiny", leader_key)


def test_a_record_of_another_job_is_refused(commits: list[Commit], leader_key: KeyLookup) -> None:
    with pytest.raises(DamagedStateError, match="of the job tiny, not digits"):
        Commit.verified(commits[0].to_bytes(), "digits", leader_key)


def test_a_signed_message_of_another_type_is_refused(signer: Signer) -> None:
    receipt = Receipt(
        job="tiny",
        epoch=1,
        round=1,
        worker="w",
        incarnation=bytes(16),
        seq=1,
        payload_root=bytes(32),
        code=ReplyCode.ACCEPTED,
        reason="",
        issued_at=0.0,
    )
    with pytest.raises(DamagedStateError, match="expected a signed pliska/commit/1 message"):
        Commit.expected(signer.sign(receipt).to_bytes(), bytes(32))


def test_another_record_than_the_expected_one_says_which_it_is(commits: list[Commit]) -> None:
    with pytest.raises(DamagedStateError, match=r"another commit record .* round 2, epoch 1"):
        Commit.expected(commits[1].to_bytes(), commits[0].digest)


def test_as_many_contributions_as_a_job_has_room_for_workers(
    commits: list[Commit], signer: Signer, leader_key: KeyLookup
) -> None:
    one = replace(commits[0].record.contributions[0], reason="x" * 4096, worker="w" * 128)
    names = ("w" * 128,) * MEMBERS_MAX
    arrival = Arrival(worker="w" * 128, after_s=1.0)
    full = replace(
        commits[0].record,
        contributions=(one,) * MEMBERS_MAX,
        attendance=Attendance(
            arrivals=(arrival,) * MEMBERS_MAX, absent=names, excluded=names, spared=names
        ),
        cursor=DataCursor(LEFT_MAX + 1, tuple(range(LEFT_MAX))),
    )
    commit = Commit.sign(full, signer)

    assert Commit.expected(commit.to_bytes(), commit.digest) == commit
    with pytest.raises(MalformedError, match=f"a length of {MEMBERS_MAX + 1}"):
        Commit.sign(replace(full, contributions=(one,) * (MEMBERS_MAX + 1)), signer)


@pytest.mark.parametrize("lease", [-1, 2**64])
def test_a_lease_that_is_no_number_of_a_batch_cannot_be_signed(
    commits: list[Commit], signer: Signer, lease: int
) -> None:
    (one,) = commits[0].record.contributions
    wrong = replace(commits[0].record, contributions=(replace(one, lease=lease),))
    with pytest.raises(MalformedError, match="is not an unsigned 64-bit integer"):
        Commit.sign(wrong, signer)


def test_a_cursor_with_as_many_leases_left_as_fit_is_read_back(
    commits: list[Commit], signer: Signer
) -> None:
    most = DataCursor(LEFT_MAX + 1, tuple(range(LEFT_MAX)))
    commit = Commit.sign(replace(commits[0].record, cursor=most), signer)
    assert Commit.unverified(commit.to_bytes()) == commit


@pytest.mark.parametrize(
    ("end", "left"),
    [(0, (1, 2)), (2, (1, 2)), (3, (1, 2)), (9, (2, 1)), (9, (2, 2)), (9, (1, 2**64 - 1))],
)
def test_a_cursor_in_hostile_bytes_is_refused(
    commits: list[Commit], signer: Signer, end: int, left: tuple[int, int]
) -> None:
    record = replace(commits[0].record, cursor=DataCursor(9, (1, 2)))
    signed = Commit.sign(record, signer).signed
    written = struct.pack(">QIQQ", 9, 2, 1, 2)
    assert signed.body.count(written) == 1
    changed = signed.body.replace(written, struct.pack(">QIQQ", end, 2, *left))
    with pytest.raises(DamagedStateError, match="no data cursor"):
        Commit.unverified(replace(signed, body=changed).to_bytes())


def test_more_leases_left_than_fit_are_not_read(commits: list[Commit], signer: Signer) -> None:
    record = replace(commits[0].record, cursor=DataCursor(9, (1, 2)))
    signed = Commit.sign(record, signer).signed
    written = struct.pack(">QI", 9, 2)
    changed = signed.body.replace(written, struct.pack(">QI", 9, LEFT_MAX + 1))
    with pytest.raises(DamagedStateError, match=f"a length of {LEFT_MAX + 1}"):
        Commit.unverified(replace(signed, body=changed).to_bytes())


def test_what_counted_is_done_whatever_weight_it_got_and_what_was_refused_is_not() -> None:
    gradients = [
        contribution("w0", 1),
        contribution("w1", 1, verdict="outvoted", weight=0.0),
        contribution("w2", 1, verdict="refused"),
        contribution("w3", 1),
    ]
    assert cursor_after(DataCursor(), gradients) == DataCursor(4, (2,))
