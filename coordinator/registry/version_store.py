"""The versions of a namespace in the store: numbers given out by compare-and-set.

A number is reserved (PENDING) before the files are stored and becomes READY when
they are, so a crash in between leaves a number that the next registration of the
same content completes. A number is never used twice. What a record says is `versions`.
"""

from collections.abc import Sequence

from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import (
    IntegrityError,
    NotFoundError,
    RegistryConflictError,
)
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.manifest import Manifest
from pliska.coordinator.registry.stored import read_stored
from pliska.coordinator.registry.versions import (
    VERSION_RECORD_BYTES_MAX,
    State,
    StoredVersion,
    VersionRecord,
)
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

ATTEMPTS_MAX = 200
"""Tries at a compare-and-set; each lost one means that somebody else's succeeded."""

_MODEL_FORMAT = "pliska-model-1"
_CONTENT_FORMAT = "pliska-content-version-1"


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

    def stored(self, found: Record) -> StoredVersion:
        """Read the record of a version."""
        return read_stored(found, VersionRecord.from_bytes, _key_of)

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


def _key_of(record: VersionRecord) -> str:
    return Keys(record.namespace).version(record.model, record.version)
