"""Messages that workers and a coordinator of the tests have signed, and whose keys are known."""

from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from training.records import LIFE, digest_of, lease_of, record, root_of

from pliska.coordinator.records.audit_keys import KeyBook, KnownKey
from pliska.coordinator.records.commit import Commit, Contribution
from pliska.coordinator.records.evidence import Equivocation, Fork, paired
from pliska.coordinator.records.receipts import KeptReceipt
from pliska.coordinator.wire import Float32Codec, GradientHeader, Receipt, ReplyCode, Signed, Signer
from pliska.coordinator.wire.codec import CodecSpec
from pliska.discovery import Role, key_id, public_bytes

LEADER = "c1"
WORKERS = ("w1", "w2", "w3")


def private_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


def signer(name: str) -> Signer:
    key = private_key(name)
    return Signer(key, key_id(public_bytes(key)))


def known(name: str, role: Role = Role.WORKER, revoked: str = "") -> KnownKey:
    public = public_bytes(private_key(name))
    return KnownKey(key_id(public), public, role, name, revoked)


KEYS = KeyBook([known(LEADER, Role.COORDINATOR), *map(known, WORKERS)])
"""The leader's key and those of three workers."""


def header(worker: str, number: int = 5, **changes: Any) -> GradientHeader:
    """The header of a worker's gradient for a round, right but for the changes."""
    right: dict[str, Any] = {
        "job": "toy",
        "epoch": 7,
        "round": number,
        "mode_epoch": 0,
        "base_version": number - 1,
        "base_digest": digest_of(number - 1),
        "worker": worker,
        "incarnation": LIFE,
        "key_id": signer(worker).key_id,
        "seq": 1,
        "nonce": bytes(16),
        "issued_at": 0.0,
        "lease": lease_of(worker, number),
        "n_samples": 8,
        "codec": CodecSpec(Float32Codec.id),
        "manifest_digest": bytes(32),
        "payload_len": 8,
        "chunk_len": 2**20,
        "payload_root": root_of(worker, number),
    }
    return GradientHeader(**{**right, **changes})


def signed_header(worker: str, number: int = 5, **changes: Any) -> Signed:
    return signer(worker).sign(header(worker, number, **changes))


def commit(
    number: int, *contributions: Contribution, previous: Commit | None = None, **changes: Any
) -> Commit:
    """A commit of the leader, chained to the one before it where that is given."""
    chained = {} if previous is None else {"previous": previous.digest}
    after = None if previous is None else previous.record
    made = record(number, contributions, after, **{**chained, **changes})
    return Commit.sign(made, signer(LEADER))


def receipt(worker: str, code: ReplyCode, reason: str, number: int = 5, **changes: Any) -> Signed:
    about = header(worker, number)
    right: dict[str, Any] = {
        "job": about.job,
        "epoch": about.epoch,
        "round": number,
        "worker": worker,
        "incarnation": about.incarnation,
        "seq": about.seq,
        "payload_root": about.payload_root,
        "code": code,
        "reason": reason,
        "issued_at": 0.0,
    }
    return signer(LEADER).sign(Receipt(**{**right, **changes}))


def kept_receipt(worker: str, code: ReplyCode, reason: str, number: int = 5) -> KeptReceipt:
    return KeptReceipt(signed_header(worker, number), receipt(worker, code, reason, number))


def equivocation(worker: str = "w1", number: int = 5, **changes: Any) -> Equivocation:
    """Evidence against a worker; with changes to the second header perhaps none."""
    second = {"payload_root": bytes(32), "seq": 2, **changes}
    return Equivocation(
        *paired(signed_header(worker, number), signed_header(worker, number, **second))
    )


def fork(number: int = 5, **changes: Any) -> Fork:
    """Evidence against the leader; with changes to the second record perhaps none."""
    other = commit(number, **{"learning_rate": 0.2, **changes})
    return Fork(*paired(commit(number).signed, other.signed))
