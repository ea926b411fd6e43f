"""Evidence convicts by signatures alone, or not at all."""

from typing import Any

import pytest
from training.signed import (
    KEYS,
    LEADER,
    commit,
    equivocation,
    fork,
    header,
    known,
    signed_header,
    signer,
)

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.evidence import (
    Equivocation,
    Evidence,
    Finding,
    Fork,
    Miscomputation,
    charge,
    conviction_of,
    digest_of,
    is_equivocation,
    kind_of,
    paired,
    read_evidence,
)
from pliska.coordinator.wire.encoding import encode
from pliska.discovery import Role


def finding(**changes: Any) -> Finding:
    about = header("w1")
    right: dict[str, Any] = {
        "job": "toy",
        "round": 5,
        "worker": "w1",
        "record_digest": bytes(32),
        "payload_root": about.payload_root,
        "recomputed_root": bytes(32),
        "deviation": 1.5,
        "tolerance": 0.01,
        "computed_with": "torch",
    }
    return Finding(**{**right, **changes})


def miscomputation(**changes: Any) -> Miscomputation:
    return Miscomputation(signed_header("w1"), signer(LEADER).sign(finding(**changes)))


def test_two_roots_for_one_slot_convict_their_worker() -> None:
    charged = charge(equivocation(), KEYS)
    assert (charged.kind, charged.offender, charged.round) == ("equivocation", "w1", 5)
    assert charged.is_against_worker
    conviction = conviction_of(equivocation(), charged)
    assert (conviction.worker, conviction.offence) == ("w1", "equivocation")
    assert conviction.evidence == digest_of(equivocation())


@pytest.mark.parametrize(
    "change",
    [
        {"payload_root": header("w1").payload_root},  # the same gradient once more
        {"round": 6},
        {"job": "another"},
        {"incarnation": b"2" * 16},  # a restarted worker may compute a little differently
        {"base_digest": bytes(32)},  # put back on another model
        {"base_version": 3},
        {"mode_epoch": 1},
        {"lease": 9},  # told to read another batch
    ],
)
def test_honest_reasons_for_two_headers_convict_nobody(change: dict[str, Any]) -> None:
    assert not is_equivocation(header("w1"), header("w1", **{"payload_root": bytes(32), **change}))
    with pytest.raises(DamagedStateError, match="not two different gradients"):
        charge(equivocation(**change), KEYS)


def test_same_gradient_signed_for_two_epochs_is_no_offence_but_another_one_is() -> None:
    assert not is_equivocation(header("w1"), header("w1", epoch=8, seq=2))
    assert is_equivocation(header("w1"), header("w1", epoch=8, payload_root=bytes(32)))


def test_two_records_of_one_leader_for_one_version_convict_it() -> None:
    charged = charge(fork(), KEYS)
    assert (charged.kind, charged.offender) == ("fork", signer(LEADER).key_id)
    assert not charged.is_against_worker


@pytest.mark.parametrize(
    "change",
    [{"epoch": 8}, {"version": 6, "round": 6}, {"job": "another"}, {"learning_rate": 0.1}],
)
def test_two_leaders_that_wrote_one_version_convict_nobody(change: dict[str, Any]) -> None:
    with pytest.raises(DamagedStateError):
        charge(fork(**change), KEYS)


def test_records_of_two_coordinators_are_no_fork_of_either() -> None:
    keys = KeyBook([known(LEADER, Role.COORDINATOR), known("c2", Role.COORDINATOR)])
    other = signer("c2").sign(commit(5, learning_rate=0.2).record)
    with pytest.raises(DamagedStateError, match="not two of one leader"):
        charge(Fork(*paired(commit(5).signed, other)), keys)


def test_finding_beyond_the_tolerance_convicts() -> None:
    charged = charge(miscomputation(), KEYS)
    assert (charged.kind, charged.offender, charged.round) == ("miscomputation", "w1", 5)
    assert "1.5 times its length" in charged.reason


@pytest.mark.parametrize(
    "change",
    [{"deviation": 0.01}, {"worker": "w2"}, {"payload_root": bytes(32)}, {"job": "another"}],
)
def test_finding_about_something_else_convicts_nobody(change: dict[str, Any]) -> None:
    with pytest.raises(DamagedStateError):
        charge(miscomputation(**change), KEYS)


@pytest.mark.parametrize(
    "forged",
    [
        Equivocation(*paired(signed_header("w1"), signer("w2").sign(header("w1", seq=2)))),
        Equivocation(
            *paired(
                signed_header("w1"),
                signer(LEADER).sign(header("w1", seq=2, payload_root=bytes(32))),
            )
        ),
        Fork(*paired(commit(5).signed, signer("w1").sign(commit(5, learning_rate=0.2).record))),
        Miscomputation(signed_header("w1"), signer("w2").sign(finding())),
    ],
    ids=["other worker", "coordinator for worker", "worker for coordinator", "finding of a worker"],
)
def test_nobody_can_sign_for_another(forged: Evidence) -> None:
    with pytest.raises(DamagedStateError):
        charge(forged, KEYS)


def test_key_of_another_holder_does_not_speak_for_a_worker() -> None:
    as_w1 = header("w1", key_id=signer("w2").key_id, payload_root=bytes(32))
    with pytest.raises(DamagedStateError, match="names worker w1, but w2 signed it"):
        KEYS.header(signer("w2").sign(as_w1))


@pytest.mark.parametrize("evidence", [equivocation(), fork(), miscomputation()], ids=kind_of)
def test_no_byte_of_evidence_can_be_changed(evidence: Evidence) -> None:
    content = encode(evidence)
    kind = kind_of(evidence)
    assert charge(read_evidence(content, kind), KEYS).kind == kind
    for position in range(0, len(content), 7):
        altered = bytearray(content)
        altered[position] ^= 0x10
        with pytest.raises(DamagedStateError):
            charge(read_evidence(bytes(altered), kind), KEYS)


def test_evidence_has_one_form_whoever_saw_which_header_first() -> None:
    first, second = signed_header("w1"), signed_header("w1", payload_root=bytes(32))
    assert Equivocation(*paired(first, second)) == Equivocation(*paired(second, first))
