"""Aliases: names such as `prod` that point at a version.

An alias changes only by compare-and-set, together with a new entry of its history
(see `history`). Its generation grows by exactly one on every change, also when
the version number goes down.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pliska.coordinator.registry.digest import NO_DIGEST, Digest
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import IntegrityError, RegistryConflictError
from pliska.coordinator.registry.history import Canary, HistoryEntry, take_canary, verify_chain
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.stored import Stored, read_stored
from pliska.locks import Backend, Record

ALIAS_RECORD_BYTES_MAX = 64 * 1024
SNAPSHOT_ATTEMPTS_MAX = 100

_ALIAS_FORMAT = "pliska-alias-1"


@dataclass(frozen=True, slots=True)
class AliasRecord:
    """Where an alias points now.

    Attributes:
        gen: Generation: the number of its newest history entry.
        version: The version it points at.
        manifest_digest: That version's manifest.
        canary: What a part of the requests is given to instead.
        op_id: The operation that moved it here.
        actor: Who moved it here.
        prev_hash: Hash of the history entry before the newest.
        entry_hash: Hash of the newest history entry.
    """

    namespace: str
    model: str
    alias: str
    gen: int
    version: int
    manifest_digest: Digest
    canary: Canary | None
    op_id: str
    actor: str
    prev_hash: Digest
    entry_hash: Digest

    @classmethod
    def after(cls, entry: HistoryEntry) -> "AliasRecord":
        """Return what the alias is when `entry` is the newest of its history."""
        return cls(
            namespace=entry.namespace,
            model=entry.model,
            alias=entry.alias,
            gen=entry.gen,
            version=entry.to_version,
            manifest_digest=entry.manifest_digest,
            canary=entry.canary,
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
                "namespace": self.namespace,
                "model": self.model,
                "alias": self.alias,
                "gen": self.gen,
                "version": self.version,
                "manifest_digest": self.manifest_digest,
                "canary": None if self.canary is None else self.canary.to_fields(),
                "op_id": self.op_id,
                "actor": self.actor,
                "prev_hash": self.prev_hash,
                "entry_hash": self.entry_hash,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "AliasRecord":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, ALIAS_RECORD_BYTES_MAX, what)
        document.check_format(_ALIAS_FORMAT)
        record = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            alias=document.text("alias"),
            gen=document.integer("gen", minimum=1),
            version=document.integer("version", minimum=1),
            manifest_digest=document.digest("manifest_digest"),
            canary=take_canary(document),
            op_id=document.text("op_id"),
            actor=document.text("actor"),
            prev_hash=document.digest("prev_hash"),
            entry_hash=document.digest("entry_hash"),
        )
        document.finish()
        return record


StoredAlias = Stored[AliasRecord]


@dataclass(frozen=True, slots=True)
class AliasState:
    """An alias and its whole history, read at one moment and verified.

    Attributes:
        history: All moves, oldest first; empty where there is no alias.
    """

    namespace: str
    model: str
    alias: str
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
    def canary(self) -> Canary | None:
        """What a part of the requests is given to."""
        return self.history[-1].canary if self.history else None


class Aliases:
    """Reads the aliases of one namespace; `transactions` says how they change."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._namespace = namespace
        self._keys = Keys(namespace)

    def of_model(self, model: str) -> list[str]:
        """Return the names of the model's aliases, sorted; some may have never been set."""
        return list(self._backend.directories(self._keys.aliases(model)))

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

    def stands(self, model: str, alias: str) -> AliasRecord | None:
        """Return where an alias points, not compared with its history; None if it was never set."""
        found = self._backend.get(self._keys.alias(model, alias))
        return None if found is None else self.stored(found).record

    def entries(self, alias: AliasRecord, after: HistoryEntry | None) -> tuple[HistoryEntry, ...]:
        """Read what followed an entry, up to what the alias says now, and verify it.

        Args:
            alias: As it was read; its generation is not below that of `after`.
            after: The newest entry that the caller knows; None where it knows none.

        Raises:
            IntegrityError: An entry is missing, or does not follow: the history was changed.
        """
        first = after.gen + 1 if after else 1
        found = []
        for gen in range(first, alias.gen + 1):
            record = self._backend.get(self._keys.history_entry(alias.model, alias.alias, gen))
            found += [] if record is None else [self.entry(record)]
        what = f"alias {alias.alias!r} of {alias.model!r}"
        verify_chain(found, what, after)
        newest = found[-1] if found else after
        _require_newest(alias, newest, what)
        return tuple(found)

    def stored(self, found: Record) -> StoredAlias:
        """Read an alias record."""
        return read_stored(found, AliasRecord.from_bytes, self._alias_key)

    def entry(self, found: Record) -> HistoryEntry:
        """Read a history entry."""
        return read_stored(found, HistoryEntry.from_bytes, self._entry_key).record

    def _verified(
        self, model: str, alias: str, found: Record | None, records: Sequence[Record]
    ) -> AliasState:
        history = [self.entry(record) for record in sorted(records, key=lambda record: record.key)]
        what = f"alias {alias!r} of {model!r}"
        verify_chain(history, what)
        stands = None if found is None else self.stored(found).record
        _require_newest(stands, history[-1] if history else None, what)
        return AliasState(self._namespace, model, alias, tuple(history))

    def _alias_key(self, record: AliasRecord) -> str:
        return Keys(record.namespace).alias(record.model, record.alias)

    def _entry_key(self, entry: HistoryEntry) -> str:
        return Keys(entry.namespace).history_entry(entry.model, entry.alias, entry.gen)


def next_entry_hash(alias: AliasRecord | None) -> Digest:
    """Return what the next entry of the alias has as `prev_hash`."""
    return NO_DIGEST if alias is None else alias.entry_hash


def _require_newest(alias: AliasRecord | None, newest: HistoryEntry | None, what: str) -> None:
    if alias != (None if newest is None else AliasRecord.after(newest)):
        raise IntegrityError(
            f"{what} is not what the newest entry of its history says: it was changed by "
            "something else than a move; do not use it"
        )
