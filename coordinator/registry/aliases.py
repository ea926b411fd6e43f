"""Aliases: names such as `prod` that point at a version, and all that they ever pointed at.

An alias changes only by compare-and-set, together with a new entry of its
history. Its generation grows by exactly one on every change, also when the
version number goes down. History entries are created once and never changed, and
each carries the hash of the one before; the alias carries the hash of the newest,
so a change to any record that is not a move shows when they are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.digest import NO_DIGEST, Digest, digest_of
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import IntegrityError, RegistryConflictError
from pliska.coordinator.registry.keys import Keys
from pliska.locks import Absent, Backend, Create, Record, Revision, Unmodified, Update

ALIAS_RECORD_BYTES_MAX = 64 * 1024
SNAPSHOT_ATTEMPTS_MAX = 100

_ALIAS_FORMAT = "pliska-alias-1"
_HISTORY_FORMAT = "pliska-history-1"


class MoveKind(StrEnum):
    """How an alias came to point at a version."""

    PROMOTE = "promote"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One move of an alias.

    Attributes:
        gen: 1 for the first move, then one more each time.
        kind: Promote or rollback.
        from_version: Where it pointed before; None for the first move.
        to_version: Where it points since.
        manifest_digest: The manifest of `to_version`.
        op_id: The operation that moved it; a repeated command has the same.
        actor: Who moved it.
        reason: Why.
        at: UTC time, ISO 8601.
        prev_hash: Hash of the entry before; `NO_DIGEST` for the first.
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
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "HistoryEntry":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, ALIAS_RECORD_BYTES_MAX, what)
        if document.text("format") != _HISTORY_FORMAT:
            raise document.bad("format", _HISTORY_FORMAT)
        kind = document.text("kind")
        if kind not in set(MoveKind):
            raise document.bad("kind", "one of " + ", ".join(MoveKind))
        entry = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            alias=document.text("alias"),
            gen=document.integer("gen", minimum=1),
            kind=MoveKind(kind),
            from_version=document.optional_integer("from_version", minimum=1),
            to_version=document.integer("to_version", minimum=1),
            manifest_digest=document.digest("manifest_digest"),
            op_id=document.text("op_id"),
            actor=document.text("actor"),
            reason=document.text("reason"),
            at=document.text("at"),
            prev_hash=document.digest("prev_hash"),
        )
        document.finish()
        return entry


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """Where an alias points now.

    Attributes:
        gen: Generation: the number of its newest history entry.
        version: The version it points at.
        manifest_digest: That version's manifest.
        op_id: The operation that moved it here.
        actor: Who moved it here.
        prev_hash: Hash of the history entry before the newest.
        entry_hash: Hash of the newest history entry.
    """

    gen: int
    version: int
    manifest_digest: Digest
    op_id: str
    actor: str
    prev_hash: Digest
    entry_hash: Digest

    @classmethod
    def after(cls, entry: HistoryEntry) -> "AliasRecord":
        """Return what the alias is when `entry` is the newest of its history."""
        return cls(
            gen=entry.gen,
            version=entry.to_version,
            manifest_digest=entry.manifest_digest,
            op_id=entry.op_id,
            actor=entry.actor,
            prev_hash=entry.prev_hash,
            entry_hash=entry.hash,
        )

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(
            {
                "format": _ALIAS_FORMAT,
                "gen": self.gen,
                "version": self.version,
                "manifest_digest": self.manifest_digest,
                "op_id": self.op_id,
                "actor": self.actor,
                "prev_hash": self.prev_hash,
                "entry_hash": self.entry_hash,
            }
        )


@dataclass(frozen=True, slots=True)
class AliasState:
    """An alias and its whole history, read at one moment and verified.

    Attributes:
        modified: Revision of the alias record; None where there is no alias.
        history: All moves, oldest first; empty where there is no alias.
    """

    namespace: str
    model: str
    alias: str
    modified: Revision | None
    history: tuple[HistoryEntry, ...]

    @property
    def gen(self) -> int:
        """The generation; 0 where there is no alias."""
        return len(self.history)

    @property
    def version(self) -> int | None:
        """Where the alias points; None where there is no alias."""
        return self.history[-1].to_version if self.history else None

    @property
    def head_hash(self) -> Digest:
        """What the next entry has as `prev_hash`."""
        return self.history[-1].hash if self.history else NO_DIGEST

    def moved_by(self, op_id: str) -> HistoryEntry | None:
        """Return the move that the operation made, or None."""
        return next((entry for entry in self.history if entry.op_id == op_id), None)


class Aliases:
    """The aliases of one namespace."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._namespace = namespace
        self._keys = Keys(namespace)

    def of_model(self, model: str) -> list[str]:
        """Return the names of the model's aliases, sorted."""
        records = self._backend.list(self._keys.aliases(model)).records
        return sorted(record.key.rpartition("/")[2] for record in records)

    def read(self, model: str, alias: str) -> AliasState:
        """Read an alias with its history and verify both.

        Raises:
            IntegrityError: A record was changed, is missing, or is there without a move.
        """
        key = self._keys.alias(model, alias)
        for _ in range(SNAPSHOT_ATTEMPTS_MAX):
            before = self._backend.get(key)
            listing = self._backend.list(self._keys.history(model, alias))
            if self._backend.get(key) == before:
                return self._verified(model, alias, before, listing.records)
        raise RegistryConflictError(
            f"alias {alias!r} of {model!r} keeps moving while it is read; try again"
        )

    def move(
        self, state: AliasState, entry: HistoryEntry
    ) -> tuple[list[Absent | Unmodified], list[Create | Update]]:
        """Return the checks and changes that make `entry` the newest of the history."""
        key = self._keys.alias(state.model, state.alias)
        value = AliasRecord.after(entry).to_bytes()
        created = Create(
            self._keys.history_entry(state.model, state.alias, entry.gen), entry.to_bytes()
        )
        if state.modified is None:
            return [Absent(key)], [Create(key, value), created]
        return [Unmodified(key, state.modified)], [Update(key, value), created]

    def _verified(
        self, model: str, alias: str, found: Record | None, records: Sequence[Record]
    ) -> AliasState:
        history = []
        for record in sorted(records, key=lambda record: record.key):
            entry = HistoryEntry.from_bytes(record.value, record.key)
            if record.key != self._keys.history_entry(model, alias, entry.gen) or (
                (entry.namespace, entry.model, entry.alias) != (self._namespace, model, alias)
            ):
                raise IntegrityError(f"{record.key}: is an entry of another history")
            history.append(entry)
        what = f"alias {alias!r} of {model!r}"
        verify_chain(history, what)
        expected = AliasRecord.after(history[-1]).to_bytes() if history else None
        if (None if found is None else found.value) != expected:
            raise IntegrityError(
                f"{what} is not what the newest entry of its history says: it was changed by "
                "something else than a move; do not use it"
            )
        modified = None if found is None else found.modified
        return AliasState(self._namespace, model, alias, modified, tuple(history))


def verify_chain(history: Sequence[HistoryEntry], what: str) -> None:
    """Raise `IntegrityError` unless each entry follows the one before.

    Args:
        history: Entries, oldest first.
        what: Names the history in messages.
    """
    previous_hash, previous_version = NO_DIGEST, None
    for gen, entry in enumerate(history, start=1):
        if entry.gen != gen:
            raise IntegrityError(f"{what}: generation {gen} is missing from its history")
        if entry.prev_hash != previous_hash or entry.from_version != previous_version:
            raise IntegrityError(
                f"{what}: generation {gen} does not follow generation {gen - 1}: its history was "
                "changed; do not use it"
            )
        previous_hash, previous_version = entry.hash, entry.to_version
