"""What a standby may believe and what it needs: pure decisions on records and versions.

`standby` keeps the model and the disk, `recovery` walks the chain; here is what
they decide by. No I/O, no clock.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pliska.coordinator.records.chain import break_in_chain
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.refusal import Refusal
from pliska.coordinator.wire import ReplyCode

COPY_AFTER = 4
"""A state is as large as a few aggregates (parameters, and what the optimizer keeps): when more
than so many log entries are missing, one checkpoint costs less."""


@dataclass(frozen=True, slots=True)
class Place:
    """A version on the chain: its number and the digest of the record that made it."""

    version: int
    digest: bytes


def place_of(commit: Commit) -> Place:
    """Return the place that a commit made."""
    return Place(commit.record.version, commit.digest)


def origin_of(commit: Commit) -> Place:
    """Return the place whose state that of a commit comes from: the one before, or a target."""
    record = commit.record
    if record.rollback is not None:
        return Place(record.rollback.target, record.rollback.record_digest)
    return Place(record.version - 1, record.previous)


@dataclass(frozen=True, slots=True)
class Lead:
    """Who leads, by the store's word.

    Attributes:
        epoch: Of the leadership; greater than that of every one before.
        key_id: Signs the leader's records.
    """

    epoch: int
    key_id: str


def refuse_entry(commit: Commit, lead: Lead | None, held: Mapping[bytes, Commit]) -> Refusal | None:
    """Say why a standby must not keep an entry that it was sent, or return None where it may.

    Its signature is checked before, its content afterwards.

    Args:
        commit: Of the entry.
        lead: Who leads, read from the store after the entry came.
        held: By digest, what the standby has on disk that an entry may follow: its
            last committed record and what it was sent since.
    """
    record = commit.record
    if lead is None or record.epoch != lead.epoch:
        leads = "nobody leads" if lead is None else f"epoch {lead.epoch} leads"
        return Refusal(ReplyCode.STALE_EPOCH, f"the entry is of epoch {record.epoch}, but {leads}")
    if commit.signed.key_id != lead.key_id:
        reason = f"the entry is signed by {commit.signed.key_id}, not by the leader"
        return Refusal(ReplyCode.BAD_SIG, reason)
    previous = held.get(record.previous)
    if previous is None and record.version != 1:
        reason = f"lacks what version {record.version} follows"
        return Refusal(ReplyCode.BUSY, reason)
    broken = break_in_chain(previous, record)
    return None if broken is None else Refusal(ReplyCode.WRONG_BASE, broken)


def should_copy(checkpoint: int, starts: Collection[int], logged: Collection[int]) -> bool:
    """Decide whether to fetch a checkpoint rather than the log entries before it.

    Args:
        checkpoint: Version of a checkpoint that another coordinator has.
        starts: Versions that this one could start from.
        logged: Versions whose entries it has.
    """
    start = max((each for each in starts if each <= checkpoint), default=0)
    missing = checkpoint - start - len({each for each in logged if start < each <= checkpoint})
    return missing > COPY_AFTER
