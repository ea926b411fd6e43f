"""Versions as records: what one is, what state it is in, and how it is stored.

Once a version is READY only its state and its signatures change. How numbers are given
out, and how a record is found and replaced, is `version_store`.
"""

from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.digest import NO_DIGEST, Digest
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import RefusedError
from pliska.coordinator.registry.stored import Stored

VERSION_RECORD_BYTES_MAX = 64 * 1024
SIGNATURES_MAX = 32

_VERSION_FORMAT = "pliska-version-1"


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
