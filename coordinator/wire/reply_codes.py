"""The codes that a coordinator answers with, and the HTTP status of each.

Not the reply itself: that is `replies.py`. Source: the design's check list for
an arriving gradient, cheapest check first.
"""

from enum import StrEnum


class ReplyCode(StrEnum):
    """What became of a message."""

    ACCEPTED = "ACCEPTED"
    """In the round; nothing durable is promised before COMMITTED."""
    DUPLICATE = "DUPLICATE"
    """The same payload was accepted before; the receipt is the same."""
    COMMITTED = "COMMITTED"
    """The round is closed and durable; the version it made comes along."""
    STALE_EPOCH = "STALE_EPOCH"
    """Addressed to an earlier leader; the present one comes along."""
    STALE_ROUND = "STALE_ROUND"
    STALE_MODE = "STALE_MODE"
    """Signed for a mode that is no longer in force; the present one comes along."""
    STALE_LEASE = "STALE_LEASE"
    """Of another batch than the worker's; the right lease comes along, if it has one."""
    FUTURE_ROUND = "FUTURE_ROUND"
    WRONG_BASE = "WRONG_BASE"
    """Computed on other parameters than those of this round."""
    NOT_MEMBER = "NOT_MEMBER"
    """The key or the worker is not enrolled for this job."""
    OLD_INCARNATION = "OLD_INCARNATION"
    """A newer process of the same worker has taken over."""
    BAD_SIG = "BAD_SIG"
    KEY_REVOKED = "KEY_REVOKED"
    QUARANTINED = "QUARANTINED"
    """The worker's past gradients keep this one out; its time ends by itself."""
    REPLAY = "REPLAY"
    """The sequence number or nonce was used before."""
    EQUIVOCATION = "EQUIVOCATION"
    """A second, different payload for a slot that is taken."""
    SCHEMA = "SCHEMA"
    """Not a well-formed message of this job: layout, lengths, manifest or codec."""
    DIGEST = "DIGEST"
    """The payload is not the one that was signed."""
    NONFINITE = "NONFINITE"
    TOO_LARGE = "TOO_LARGE"
    BUSY = "BUSY"
    """Try again after `retry_after_s`."""


HTTP_STATUS: dict[ReplyCode, int] = {
    ReplyCode.ACCEPTED: 200,
    ReplyCode.DUPLICATE: 200,
    ReplyCode.COMMITTED: 200,
    ReplyCode.STALE_EPOCH: 409,
    ReplyCode.STALE_ROUND: 409,
    ReplyCode.STALE_MODE: 409,
    ReplyCode.STALE_LEASE: 409,
    ReplyCode.FUTURE_ROUND: 409,
    ReplyCode.WRONG_BASE: 409,
    ReplyCode.NOT_MEMBER: 403,
    ReplyCode.OLD_INCARNATION: 403,
    ReplyCode.BAD_SIG: 401,
    ReplyCode.KEY_REVOKED: 403,
    ReplyCode.QUARANTINED: 403,
    ReplyCode.REPLAY: 409,
    ReplyCode.EQUIVOCATION: 409,
    ReplyCode.SCHEMA: 400,
    ReplyCode.DIGEST: 400,
    ReplyCode.NONFINITE: 422,
    ReplyCode.TOO_LARGE: 413,
    ReplyCode.BUSY: 503,
}
"""The code in the reply decides; the status is for proxies and for `curl`."""
