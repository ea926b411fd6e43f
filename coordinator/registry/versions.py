"""Version records: numbers given out by compare-and-set, content, and state.

A number is reserved (PENDING) before the files are stored and becomes READY when
they are, so a crash in between leaves a number that the next registration of the
same content completes. A number is never used twice, and once a version is READY
only its state and its signatures change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.digest import NO_DIGEST, Digest
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import (
    IntegrityError,
    NotFoundError,
    RefusedError,
    RegistryConflictError,
)
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.manifest import Manifest
from pliska.coordinator.registry.stored import Stored, read_stored
from pliska.locks import (
    Absent,
    Backend,
    Change,
    Check,
    ConflictError,
    Create,
    Delete,
    OutcomeUnknownError,
    Record,
    Unmodified,
    Update,
)

VERSION_RECORD_BYTES_MAX = 64 * 1024
SIGNATURES_MAX = 32
ATTEMPTS_MAX = 200
"""Tries at a compare-and-set; each lost one means that somebody else's succeeded."""

_VERSION_FORMAT = "pliska-version-1"
_MODEL_FORMAT = "pliska-model-1"
_CONTENT_FORMAT = "pliska-content-version-1"


class State(StrEnum):
    """What may be done with a version."""

    PENDING = "PENDING"
    """Its files are being stored, or a crash interrupted that."""
    READY = "READY"
    """An alias may point at it."""
    DEPRECATED = "DEPRECATED"
    """An alias may point at it only where that is asked for in so many words."""
    QUARANTINED = "QUARANTINED"
    """It was rolled back from: no alias may be moved to it, nor to what was trained from it."""
    DELETING = "DELETING"
    """Its files are being removed, or a crash interrupted that."""
    DELETED = "DELETED"
    """Its files are gone; its number is never given out again."""


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """One version of a model.

    Attributes:
        version: 1, 2, 3, ... within the model.
        content_id: Identity of its tensors.
        manifest_digest: The manifest; None while PENDING, and where that came to nothing.
        state: What may be done with it.
        state_reason: Why it is in that state; empty for the ordinary ways.
        parent: The version that it was trained from.
        tensors: How many it has.
        nbytes: Bytes of all its tensors.
        registered_at: UTC time, ISO 8601.
        registered_by: Who registered it.
        signatures: Base64 of signed `VersionStatement`s, one a key.
        marks: How often its state was changed (see `marks`); 0 while PENDING.
        mark_hash: Hash of the newest of those marks.
    """

    namespace: str
    model: str
    version: int
    content_id: Digest
    manifest_digest: Digest | None
    state: State
    state_reason: str
    parent: int | None
    tensors: int
    nbytes: int
    registered_at: str
    registered_by: str
    signatures: tuple[str, ...] = ()
    marks: int = 0
    mark_hash: Digest = NO_DIGEST

    @property
    def name(self) -> str:
        """How a person refers to it, such as `digits:3`."""
        return f"{self.model}:{self.version}"

    @property
    def is_given_up(self) -> bool:
        """Whether its registration failed: it is DELETED and never was READY."""
        return self.state is State.DELETED and self.manifest_digest is None

    def complete_manifest_digest(self) -> Digest:
        """Return the manifest digest. Raises `RefusedError` where the version is not complete."""
        if self.manifest_digest is None:
            raise RefusedError(
                f"{self.name} is {self.state}: its registration did not finish; register the same "
                "content again"
            )
        return self.manifest_digest

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(
            {
                "format": _VERSION_FORMAT,
                "namespace": self.namespace,
                "model": self.model,
                "version": self.version,
                "content_id": self.content_id,
                "manifest_digest": self.manifest_digest,
                "state": self.state,
                "state_reason": self.state_reason,
                "parent": self.parent,
                "tensors": self.tensors,
                "nbytes": self.nbytes,
                "registered_at": self.registered_at,
                "registered_by": self.registered_by,
                "signatures": list(self.signatures),
                "marks": self.marks,
                "mark_hash": self.mark_hash,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "VersionRecord":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, VERSION_RECORD_BYTES_MAX, what)
        document.check_format(_VERSION_FORMAT)
        record = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            version=document.integer("version", minimum=1),
            content_id=document.digest("content_id"),
            manifest_digest=document.optional_digest("manifest_digest"),
            state=document.choice("state", State),
            state_reason=document.text("state_reason"),
            parent=document.optional_integer("parent", minimum=1),
            tensors=document.integer("tensors"),
            nbytes=document.integer("nbytes"),
            registered_at=document.text("registered_at"),
            registered_by=document.text("registered_by"),
            signatures=document.texts("signatures", SIGNATURES_MAX),
            marks=document.integer("marks"),
            mark_hash=document.digest("mark_hash"),
        )
        document.finish()
        is_whole = record.state is not State.PENDING and not record.is_given_up
        if (record.manifest_digest is not None) != is_whole:
            raise document.bad("manifest_digest", "there exactly when the version was registered")
        if record.parent is not None and record.parent >= record.version:
            raise document.bad("parent", "an older version")
        return record


StoredVersion = Stored[VersionRecord]


class Versions:
    """The versions of one namespace."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._namespace = namespace
        self._keys = Keys(namespace)

    def models(self) -> list[str]:
        """Return the names of all models, sorted."""
        records = self._backend.list(self._keys.models).records
        return sorted(record.key.rpartition("/")[2] for record in records)

    def of_model(self, model: str) -> dict[int, StoredVersion]:
        """Return all versions of a model by number, oldest first.

        Raises:
            NotFoundError: There is no such model.
        """
        records = self._backend.list(self._keys.versions(model)).records
        if not records:
            raise NotFoundError(f"no model {model!r} in namespace {self._namespace!r}")
        stored = map(self.stored, records)
        return {found.record.version: found for found in sorted(stored, key=lambda s: s.key)}

    def newest(self, model: str) -> int:
        """Return the newest number that was given out; 0 where there is no such model."""
        return self._newest(self._backend.get(self._keys.model(model)))

    def find(self, model: str, version: int) -> StoredVersion | None:
        """Return one version, or None."""
        found = self._backend.get(self._keys.version(model, version))
        return None if found is None else self.stored(found)

    def with_content(self, model: str, content_id: Digest) -> StoredVersion | None:
        """Return the version that has this content, or None."""
        key = self._keys.content(model, content_id)
        found = self._backend.get(key)
        if found is None:
            return None
        document = read_document(found.value, VERSION_RECORD_BYTES_MAX, key)
        document.check_format(_CONTENT_FORMAT)
        version = document.integer("version", minimum=1)
        document.finish()
        stored = self.find(model, version)
        if stored is None or stored.record.content_id != content_id:
            raise IntegrityError(f"{key}: version {version} is missing or has another content")
        return stored

    def reserve(self, manifest: Manifest, registered_at: str, registered_by: str) -> StoredVersion:
        """Return the version with this content; the next number, PENDING, where there is none."""
        model, content_id = manifest.model, manifest.content_id
        for _ in range(ATTEMPTS_MAX):
            found = self.with_content(model, content_id)
            if found is not None:
                return found
            head = self._backend.get(self._keys.model(model))
            record = VersionRecord(
                namespace=self._namespace,
                model=model,
                version=self._newest(head) + 1,
                content_id=content_id,
                manifest_digest=None,
                state=State.PENDING,
                state_reason="",
                parent=manifest.lineage.parent,
                tensors=len(manifest.tensors),
                nbytes=manifest.nbytes,
                registered_at=registered_at,
                registered_by=registered_by,
            )
            try:
                self._create(head, record)
            except (ConflictError, OutcomeUnknownError):
                continue  # read again: where the answer was lost, the content says if it is there
        raise RegistryConflictError(f"{model}: no number after {ATTEMPTS_MAX} tries; try again")

    def replace(
        self,
        stored: StoredVersion,
        record: VersionRecord,
        *,
        unless: Sequence[Check] = (),
        also: Sequence[Change] = (),
    ) -> None:
        """Compare and set, together with other changes.

        Raises:
            ConflictError: It changed meanwhile, or one of the checks of `unless` fails.
        """
        self._backend.transact([stored.unmodified, *unless], [stored.replaced_by(record), *also])

    def delete_content(self, stored: StoredVersion, record: VersionRecord) -> None:
        """Replace the record, and let its content be registered again under a new number.

        Raises:
            ConflictError: It changed meanwhile.
        """
        changes: list[Change] = [stored.replaced_by(record)]
        found = self.with_content(record.model, record.content_id)
        if found is not None and found.record.version == record.version:
            changes.append(Delete(self._keys.content(record.model, record.content_id)))
        self._backend.transact([stored.unmodified], changes)

    def _create(self, head: Record | None, record: VersionRecord) -> None:
        """Add the version, where its content is found, and the head, in one transaction."""
        key = self._keys.model(record.model)
        content_key = self._keys.content(record.model, record.content_id)
        value = canonical_bytes(
            {
                "format": _MODEL_FORMAT,
                "namespace": self._namespace,
                "model": record.model,
                "newest": record.version,
            }
        )
        content = canonical_bytes({"format": _CONTENT_FORMAT, "version": record.version})
        self._backend.transact(
            [Absent(key) if head is None else Unmodified(key, head.modified)],
            [
                Create(key, value) if head is None else Update(key, value),
                Create(self._keys.version(record.model, record.version), record.to_bytes()),
                Create(content_key, content),
            ],
        )

    def _newest(self, head: Record | None) -> int:
        if head is None:
            return 0
        document = read_document(head.value, VERSION_RECORD_BYTES_MAX, head.key)
        document.check_format(_MODEL_FORMAT)
        names = document.text("namespace"), document.text("model")
        newest = document.integer("newest", minimum=1)
        document.finish()
        if self._keys.model(names[1]) != head.key or names[0] != self._namespace:
            raise IntegrityError(f"{head.key}: is the record of another model")
        return newest

    def stored(self, found: Record) -> StoredVersion:
        """Read the record of a version."""
        return read_stored(found, VersionRecord.from_bytes, self._key_of)

    def _key_of(self, record: VersionRecord) -> str:
        return Keys(record.namespace).version(record.model, record.version)
