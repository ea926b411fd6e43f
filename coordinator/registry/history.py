"""Everything that an alias ever pointed at: entries that are made once and never changed.

Each change of an alias has one entry, numbered without a gap, which carries the
hash of the one before; the alias carries the hash of the newest. So a change to
any record that is not a move shows when they are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pliska.coordinator.registry.digest import NO_DIGEST, Digest, digest_of
from pliska.coordinator.registry.document import Document, canonical_bytes, read_document
from pliska.coordinator.registry.errors import IntegrityError

HISTORY_ENTRY_BYTES_MAX = 64 * 1024
APPROVALS_MAX = 32

_HISTORY_FORMAT = "pliska-history-1"


class MoveKind(StrEnum):
    """How an alias came to be what it is."""

    PROMOTE = "promote"
    CANARY = "canary"
    """A part of the requests goes to another version; the alias points where it did."""
    ROLLBACK = "rollback"
    AUTO = "auto"
    """A rollback that a failed guard began."""

    @property
    def goes_back(self) -> bool:
        """Whether it withdraws what the alias pointed at."""
        return self in (MoveKind.ROLLBACK, MoveKind.AUTO)


@dataclass(frozen=True, slots=True)
class Canary:
    """A version that a part of the requests is given to, beside the one the alias points at.

    Attributes:
        version: Its number.
        manifest_digest: Its manifest.
        percent: How many of a hundred requests, 1 to 99.
    """

    version: int
    manifest_digest: Digest
    percent: int

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of the JSON form."""
        return {
            "version": self.version,
            "manifest_digest": self.manifest_digest,
            "percent": self.percent,
        }

    @classmethod
    def from_document(cls, document: Document) -> "Canary":
        """Read the JSON form. Raises `IntegrityError` where it is none."""
        canary = cls(
            version=document.integer("version", minimum=1),
            manifest_digest=document.digest("manifest_digest"),
            percent=document.integer("percent", minimum=1),
        )
        document.finish()
        if canary.percent > 99:
            raise document.bad("percent", "less than 100")
        return canary


def take_canary(document: Document) -> Canary | None:
    """Take the field `canary`, which may be null."""
    taken = document.optional_document("canary")
    return None if taken is None else Canary.from_document(taken)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One move of an alias.

    Attributes:
        gen: 1 for the first move, then one more each time.
        kind: How it came about.
        from_version: Where it pointed before; None for the first move.
        to_version: Where it points since.
        manifest_digest: The manifest of `to_version`.
        op_id: The operation that moved it; a repeated command has the same.
        actor: Who moved it.
        reason: Why.
        at: UTC time, ISO 8601.
        prev_hash: Hash of the entry before; `NO_DIGEST` for the first.
        canary: What a part of the requests is given to; None for nothing.
        expires: From when on nobody may follow it any more, UTC; None for never.
        approvals: Base64 of signed `AliasStatement`s, one a key.
    """

    namespace: str
    model: str
    alias: str
    gen: int
    kind: MoveKind
    from_version: int | None
    to_version: int
    manifest_digest: Digest
    op_id: str
    actor: str
    reason: str
    at: str
    prev_hash: Digest
    canary: Canary | None = None
    expires: str | None = None
    approvals: tuple[str, ...] = ()

    @property
    def hash(self) -> Digest:
        """Digest of the stored form."""
        return digest_of(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(
            {
                "format": _HISTORY_FORMAT,
                "namespace": self.namespace,
                "model": self.model,
                "alias": self.alias,
                "gen": self.gen,
                "kind": self.kind,
                "from_version": self.from_version,
                "to_version": self.to_version,
                "manifest_digest": self.manifest_digest,
                "op_id": self.op_id,
                "actor": self.actor,
                "reason": self.reason,
                "at": self.at,
                "prev_hash": self.prev_hash,
                "canary": None if self.canary is None else self.canary.to_fields(),
                "expires": self.expires,
                "approvals": list(self.approvals),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "HistoryEntry":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, HISTORY_ENTRY_BYTES_MAX, what)
        document.check_format(_HISTORY_FORMAT)
        entry = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            alias=document.text("alias"),
            gen=document.integer("gen", minimum=1),
            kind=document.choice("kind", MoveKind),
            from_version=document.optional_integer("from_version", minimum=1),
            to_version=document.integer("to_version", minimum=1),
            manifest_digest=document.digest("manifest_digest"),
            op_id=document.text("op_id"),
            actor=document.text("actor"),
            reason=document.text("reason"),
            at=document.text("at"),
            prev_hash=document.digest("prev_hash"),
            canary=take_canary(document),
            expires=document.optional_time("expires"),
            approvals=document.texts("approvals", APPROVALS_MAX),
        )
        document.finish()
        return entry


def verify_chain(
    history: Sequence[HistoryEntry], what: str, after: HistoryEntry | None = None
) -> None:
    """Raise `IntegrityError` unless each entry follows the one before.

    Args:
        history: Entries, oldest first.
        what: Names the history in messages.
        after: The entry that the first one has to follow; None where that is the very first.
    """
    last_gen = after.gen if after else 0
    previous_hash = after.hash if after else NO_DIGEST
    previous_version = after.to_version if after else None
    for gen, entry in enumerate(history, start=last_gen + 1):
        if entry.gen != gen:
            raise IntegrityError(f"{what}: generation {gen} is missing from its history")
        if entry.prev_hash != previous_hash or entry.from_version != previous_version:
            raise IntegrityError(
                f"{what}: generation {gen} does not follow generation {gen - 1}: its history was "
                "changed; do not use it"
            )
        previous_hash, previous_version = entry.hash, entry.to_version
