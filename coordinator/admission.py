"""Whether a gradient's header may take a slot: the checks before any payload is read.

The order is the protocol's, cheapest first. Checks that need no signature come
before it and can only refuse; nothing that an unverified header says enters the
coordinator's state. Sizes are checked by `wire.frame`, and whether the slot is
still free is decided last, by `coordinator.round`.

Pure: `coordinator.intake` asks these functions and sends the refusal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliska.coordinator.members import Member
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.wire import GradientHeader, ReplyCode
from pliska.discovery import Enrolled, Role

UNKNOWN_KEY = Refusal(ReplyCode.NOT_MEMBER, "nobody enrolled this key: `pliska key enroll` does")


@dataclass(frozen=True, slots=True)
class Acceptable:
    """What the leader accepts at this moment.

    Attributes:
        round: The round being collected; `base_version` is one less.
        closed: Payload roots that recently committed rounds counted, by round
            and worker, so that a late retry still learns that it was counted.
        slot_taken_by: Workers whose slot of this round has an offer.
        quarantined: Reason by worker in quarantine whose gradients are refused.
    """

    job: str
    epoch: int
    round: int
    mode: str
    mode_epoch: int
    base_version: int
    base_digest: bytes
    closed: Mapping[int, Mapping[str, bytes]]
    slot_taken_by: frozenset[str]
    quarantined: Mapping[str, str] = field(default_factory=dict)


def refuse_unverified(
    header: GradientHeader, signed_by: str, member: Member | None, acceptable: Acceptable
) -> Refusal | None:
    """Make the checks that need no signature: addressed to us, now, by a member.

    Args:
        header: Parsed, not verified.
        signed_by: Key id that the envelope claims.
        member: The live worker that the header names, or None.
        acceptable: What the leader accepts now.
    """
    return (
        _refuse_address(header, acceptable)
        or _refuse_base(header, acceptable)
        or refuse_member(header, signed_by, member)
    )


def refuse_verified(
    header: GradientHeader, seq_used: int, acceptable: Acceptable
) -> Refusal | None:
    """Make the checks that follow the signature: not in quarantine, not used before.

    Where the worker's slot has an offer, the slot knows more: whether this is the
    same gradient again, or another one.

    Args:
        header: Verified.
        seq_used: The highest sequence number that the worker has used.
        acceptable: What the leader accepts now.
    """
    if header.worker in acceptable.quarantined:
        return Refusal(ReplyCode.QUARANTINED, acceptable.quarantined[header.worker])
    if header.seq <= seq_used and header.worker not in acceptable.slot_taken_by:
        reason = f"sequence {header.seq} was used before; the last was {seq_used}"
        return Refusal(ReplyCode.REPLAY, reason)
    return None


def _refuse_address(header: GradientHeader, acceptable: Acceptable) -> Refusal | None:
    if header.job != acceptable.job:
        reason = f"signed for job {header.job!r}; this is {acceptable.job!r}"
        return Refusal(ReplyCode.SCHEMA, reason)
    if header.epoch != acceptable.epoch:
        reason = f"signed for epoch {header.epoch}; the leader's is {acceptable.epoch}"
        return Refusal(ReplyCode.STALE_EPOCH, reason)
    if header.round < acceptable.round:
        counted = acceptable.closed.get(header.round, {}).get(header.worker)
        if counted is not None and counted == header.payload_root:
            return Refusal(ReplyCode.COMMITTED, f"counted in round {header.round}")
        reason = f"round {header.round} is over; round {acceptable.round} collects"
        return Refusal(ReplyCode.STALE_ROUND, reason)
    if header.round > acceptable.round:
        reason = f"round {header.round} has not begun; round {acceptable.round} collects"
        return Refusal(ReplyCode.FUTURE_ROUND, reason)
    if header.mode_epoch != acceptable.mode_epoch:
        reason = f"the mode is now {acceptable.mode!r}, mode epoch {acceptable.mode_epoch}"
        return Refusal(ReplyCode.STALE_ROUND, reason)
    return None


def _refuse_base(header: GradientHeader, acceptable: Acceptable) -> Refusal | None:
    is_base = (header.base_version, header.base_digest) == (
        acceptable.base_version,
        acceptable.base_digest,
    )
    if is_base:
        return None
    reason = (
        f"computed on version {header.base_version} {header.base_digest.hex()[:12]}; "
        f"the round's base is {acceptable.base_version} {acceptable.base_digest.hex()[:12]}"
    )
    return Refusal(ReplyCode.WRONG_BASE, reason)


def refuse_member(header: GradientHeader, signed_by: str, member: Member | None) -> Refusal | None:
    """Check that a header is of a live worker in its newest incarnation, by its key."""
    if member is None:
        return Refusal(ReplyCode.NOT_MEMBER, f"worker {header.worker!r} has not joined")
    if header.incarnation != member.incarnation:
        reason = f"a newer incarnation of worker {header.worker!r} has joined"
        return Refusal(ReplyCode.OLD_INCARNATION, reason)
    if not header.key_id == signed_by == member.key_id:
        reason = f"worker {header.worker!r} joined with another key"
        return Refusal(ReplyCode.BAD_SIG, reason)
    return None


def refuse_key(key: Enrolled | None, worker: str) -> Refusal | None:
    """Check that a key may speak for a worker.

    Args:
        key: What the keyring holds under the key id that signed.
        worker: The worker that the message speaks for.
    """
    if key is None:
        return UNKNOWN_KEY
    if not key.is_active:
        return Refusal(ReplyCode.KEY_REVOKED, f"{key.key_id} is revoked: {key.reason}")
    if key.role is not Role.WORKER or key.name != worker:
        reason = f"{key.key_id} is enrolled as {key.role} {key.name!r}, not as worker {worker!r}"
        return Refusal(ReplyCode.BAD_SIG, reason)
    return None
