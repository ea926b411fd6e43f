"""Whether a gradient's header may take a slot: the checks before any payload is read.

The order is the protocol's, cheapest first. Checks that need no signature come
before it and can only refuse; nothing that an unverified header says enters the
coordinator's state. Sizes are checked by `wire.frame`, and whether the slot is
still free is decided last, by `rounds.round`.

Pure: `coordinator.intake` asks these functions and sends the refusal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliska.coordinator.members import Member
from pliska.coordinator.records.recent_rounds import RecentRounds, Settled
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.wire import GradientHeader, ReplyCode
from pliska.discovery import Enrolled, Role

UNKNOWN_KEY = Refusal(ReplyCode.NOT_MEMBER, "nobody enrolled this key: `pliska key enroll` does")


@dataclass(frozen=True, slots=True)
class Acceptable:
    """What the leader accepts at this moment.

    Attributes:
        round: That a gradient which is sent now would count in.
        mode: In force.
        lag_max: How many rounds before this one a gradient may have been made for.
        base_version: The newest version.
        recent: What the newest rounds settled, so that a late retry still
            learns that it was counted, and nothing is counted twice.
        committed_round: The last one that is durable.
        slot_taken_by: Workers that have an offer which is not committed.
        quarantined: Reason by worker in quarantine whose gradients are refused.
        too_frequent: Workers that must let others go first.
    """

    job: str
    epoch: int
    round: int
    mode: str
    mode_epoch: int
    base_version: int
    base_digest: bytes
    lag_max: int
    recent: RecentRounds
    committed_round: int
    slot_taken_by: frozenset[str]
    quarantined: Mapping[str, str] = field(default_factory=dict)
    too_frequent: frozenset[str] = frozenset()


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
        or _refuse_round(header, acceptable)
        or _refuse_base(header, acceptable)
        or refuse_member(header, signed_by, member)
    )


def refuse_verified(
    header: GradientHeader, seq_used: int, acceptable: Acceptable
) -> Refusal | None:
    """Make the checks that follow the signature: it is this worker's turn, and a new message.

    Where the worker has an offer, the slot knows more: whether this is the
    same gradient again, or another one.

    Args:
        header: Verified.
        seq_used: The highest sequence number that the worker has used.
        acceptable: What the leader accepts now.
    """
    if header.worker in acceptable.quarantined:
        return Refusal(ReplyCode.QUARANTINED, acceptable.quarantined[header.worker])
    if header.worker in acceptable.slot_taken_by:
        return None
    if header.worker in acceptable.too_frequent:
        reason = "too many of the latest updates are its own: others come first"
        return Refusal(ReplyCode.BUSY, reason)
    if header.seq <= seq_used:
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
    return None


def _refuse_round(header: GradientHeader, acceptable: Acceptable) -> Refusal | None:
    """Check the slot: not settled, not too old, not of the future, signed for this mode."""
    settled = acceptable.recent.settled(header.round, header.worker)
    if settled is not None:
        return _refuse_settled(header, settled, acceptable.committed_round)
    if header.round > acceptable.base_version + 1:
        reason = f"round {header.round} has not begun; round {acceptable.round} collects"
        return Refusal(ReplyCode.FUTURE_ROUND, reason)
    lag = acceptable.round - header.round
    if lag > acceptable.lag_max:
        reason = f"round {header.round} is over; round {acceptable.round} collects"
        if acceptable.lag_max:
            reason += f" and takes gradients that are at most {acceptable.lag_max} versions old"
        return Refusal(ReplyCode.STALE_ROUND, reason)
    if header.mode_epoch != acceptable.mode_epoch:
        reason = f"the mode is now {acceptable.mode}, mode epoch {acceptable.mode_epoch}"
        return Refusal(ReplyCode.STALE_MODE, reason)
    return None


def _refuse_settled(header: GradientHeader, settled: Settled, committed_round: int) -> Refusal:
    if header.payload_root != settled.root:
        reason = f"another gradient for round {header.round} came to round {settled.round}"
    elif settled.is_counted and settled.round <= committed_round:
        return Refusal(ReplyCode.COMMITTED, f"counted in round {settled.round}")
    elif settled.is_counted:
        reason = f"counted in round {settled.round}, which is not durable yet"
        return Refusal(ReplyCode.DUPLICATE, reason)
    else:
        reason = f"it was refused in round {settled.round}"
    return Refusal(ReplyCode.STALE_ROUND, reason)


def _refuse_base(header: GradientHeader, acceptable: Acceptable) -> Refusal | None:
    """Check that it was computed on the very version before its round."""
    digest = acceptable.recent.digest_of(header.round - 1)
    restored = acceptable.recent.restored
    if restored is not None and header.round <= restored:
        reason = f"version {header.round - 1} is undone: version {restored} rolled the job back"
        return Refusal(ReplyCode.STALE_ROUND, reason)
    if digest is None:
        reason = f"version {header.round - 1} is too long ago to be sure of it"
        return Refusal(ReplyCode.STALE_ROUND, reason)
    if (header.base_version, header.base_digest) == (header.round - 1, digest):
        return None
    reason = (
        f"computed on version {header.base_version} {header.base_digest.hex()[:12]}; "
        f"the base of round {header.round} is {header.round - 1} {digest.hex()[:12]}"
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
