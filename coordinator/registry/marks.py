"""Marks: every change of a version's state, made once and never changed.

A version's record says what may be done with it now, its marks say who made it so
and why: registered, deprecated, quarantined, reinstated, deleted. They are numbered
without a gap, each carries the hash of the one before, and the record carries number
and hash of the newest, so a state that was changed by something else shows. States
that a crash may leave behind (PENDING, DELETING) have no mark. The mark that a
rollback makes is part of its transaction.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pliska.coordinator.registry.digest import Digest, digest_of, hex_of
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import IntegrityError
from pliska.coordinator.registry.kept_signature import counted_signers, sign_statement
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.registry.stored import read_stored
from pliska.coordinator.registry.versions import State, VersionRecord
from pliska.coordinator.wire.encoding import Digest as RawDigest
from pliska.coordinator.wire.encoding import Name
from pliska.coordinator.wire.signing import KeyLookup, Signer
from pliska.locks import Backend, Create, Record

MARK_BYTES_MAX = 64 * 1024
SIGNATURES_MAX = 32

_FORMAT = "pliska-mark-1"


@dataclass(frozen=True, slots=True)
class Mark:
    """One change of a version's state.

    Attributes:
        number: 1 for the registration, then one more each time.
        state: What the version is since.
        manifest_digest: That version's manifest.
        actor: Who did it.
        reason: Why.
        at: UTC time, ISO 8601.
        op_id: The rollback that did it; empty where a person or a collection did.
        prev_hash: Hash of the mark before; `NO_DIGEST` for the first.
        signatures: Base64 of signed `MarkStatement`s, one a key.
    """

    namespace: str
    model: str
    version: int
    number: int
    state: State
    manifest_digest: Digest
    actor: str
    reason: str
    at: str
    op_id: str
    prev_hash: Digest
    signatures: tuple[str, ...] = ()

    @property
    def hash(self) -> Digest:
        """Digest of the stored form."""
        return digest_of(self.to_bytes())

    def creation(self) -> Create:
        """Return the change that adds it; sent with the one of the version's record."""
        return Create(_key_of(self), self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes(
            {
                "format": _FORMAT,
                "namespace": self.namespace,
                "model": self.model,
                "version": self.version,
                "number": self.number,
                "state": self.state,
                "manifest_digest": self.manifest_digest,
                "actor": self.actor,
                "reason": self.reason,
                "at": self.at,
                "op_id": self.op_id,
                "prev_hash": self.prev_hash,
                "signatures": list(self.signatures),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "Mark":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, MARK_BYTES_MAX, what)
        document.check_format(_FORMAT)
        mark = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            version=document.integer("version", minimum=1),
            number=document.integer("number", minimum=1),
            state=document.choice("state", State),
            manifest_digest=document.digest("manifest_digest"),
            actor=document.text("actor"),
            reason=document.text("reason"),
            at=document.time("at"),
            op_id=document.text("op_id"),
            prev_hash=document.digest("prev_hash"),
            signatures=document.texts("signatures", SIGNATURES_MAX),
        )
        document.finish()
        return mark


def next_mark(
    record: VersionRecord, state: State, *, actor: str, reason: str, at: str, op_id: str = ""
) -> Mark:
    """Return the mark that makes the version `state`; `marked` applies it.

    Args:
        record: The version, complete.
        state: What it will be.
        actor: Who does it.
        reason: Why.
        at: UTC time, ISO 8601.
        op_id: The rollback that does it.
    """
    return Mark(
        namespace=record.namespace,
        model=record.model,
        version=record.version,
        number=record.marks + 1,
        state=state,
        manifest_digest=record.complete_manifest_digest(),
        actor=actor,
        reason=reason,
        at=at,
        op_id=op_id,
        prev_hash=record.mark_hash,
    )


def marked(record: VersionRecord, mark: Mark) -> VersionRecord:
    """Return the version as it is since the mark."""
    return dataclasses.replace(
        record,
        state=mark.state,
        state_reason=mark.reason,
        marks=mark.number,
        mark_hash=mark.hash,
    )


def refusal_to_mark(record: VersionRecord, state: State) -> str | None:
    """Say why a person may not make the version `state`; None when one may."""
    if record.state in (State.PENDING, State.DELETING, State.DELETED):
        return f"it is {record.state}"
    if record.state is State.QUARANTINED and state is State.DEPRECATED:
        return "it is QUARANTINED, which is stricter; reinstate it first"
    return None


@dataclass(frozen=True, slots=True)
class MarkStatement:
    """What a publisher signs: after these marks the version is in this state."""

    wire_type: ClassVar[str] = "pliska/mark/1"

    namespace: Name
    model: Name
    version: int
    number: int
    state: Name
    manifest_digest: RawDigest
    prev_hash: RawDigest


def signed_mark(mark: Mark, signers: Sequence[Signer]) -> Mark:
    """Return the mark with a signature of each signer."""
    signatures = tuple(sign_statement(_statement(mark), signer) for signer in signers)
    return dataclasses.replace(mark, signatures=signatures)


def mark_signers(mark: Mark, publisher_key: KeyLookup) -> frozenset[str]:
    """Return the ids of the keys that signed the mark and count.

    Args:
        mark: With its signatures; those that do not fit it count for nothing.
        publisher_key: Key id to public key; None for a key that does not count.
    """
    return counted_signers(mark.signatures, _statement(mark), publisher_key)


class Marks:
    """Reads the marks of one namespace, and holds versions against them.

    Args:
        backend: The coordination store.
        namespace: Whose versions.
        publisher_key: Key id to the public key of an enrolled publisher, or None.
        signatures_min: How many publishers must have signed a mark that makes a
            version READY again.
    """

    def __init__(
        self, backend: Backend, namespace: str, publisher_key: KeyLookup, signatures_min: int
    ) -> None:
        self._backend = backend
        self._keys = Keys(namespace)
        self._publisher_key = publisher_key
        self._signatures_min = signatures_min

    def newest(self, record: VersionRecord) -> Mark:
        """Return the mark that made the version what it is.

        Raises:
            RefusedError: The version is not complete.
            IntegrityError: There is none, or another one than the record says, or too
                few publishers signed that the version is READY again.
        """
        record.complete_manifest_digest()
        found = self._backend.get(self._keys.mark(record.model, record.version, record.marks))
        if found is None:
            raise IntegrityError(f"{record.name}: mark {record.marks} is missing; do not use it")
        mark = self.read(found)
        is_as_marked = record.state in (mark.state, State.DELETING)
        if mark.hash != record.mark_hash or not is_as_marked:
            raise IntegrityError(
                f"{record.name} is {record.state}, which is not what its mark {mark.number} says: "
                "it was changed by something else than a mark; do not use it"
            )
        if self.lacks_signatures(mark):
            raise IntegrityError(
                f"{record.name}: its mark {mark.number} makes it READY again with fewer than "
                f"{self._signatures_min} signatures of enrolled publishers; do not use it"
            )
        return mark

    def lacks_signatures(self, mark: Mark) -> bool:
        """Whether the mark makes a version READY again and too few publishers signed it."""
        is_reinstated = mark.state is State.READY and mark.number > 1
        signers = mark_signers(mark, self._publisher_key) if is_reinstated else ()
        return is_reinstated and len(signers) < self._signatures_min

    def of_version(self, record: VersionRecord) -> tuple[Mark, ...]:
        """Return all marks of a version, oldest first, verified.

        Raises:
            IntegrityError: One is missing, or does not follow the one before.
        """
        if record.manifest_digest is None:
            return ()
        marks = [self.newest(record)]
        while marks[-1].number > 1:
            number = marks[-1].number - 1
            found = self._backend.get(self._keys.mark(record.model, record.version, number))
            if found is None or self.read(found).hash != marks[-1].prev_hash:
                raise IntegrityError(
                    f"{record.name}: mark {number} is missing or was changed; do not use it"
                )
            marks.append(self.read(found))
        return tuple(reversed(marks))

    def read(self, found: Record) -> Mark:
        """Read a mark. Raises `IntegrityError` where it is none."""
        return read_stored(found, Mark.from_bytes, _key_of).record


def _statement(mark: Mark) -> MarkStatement:
    return MarkStatement(
        namespace=mark.namespace,
        model=mark.model,
        version=mark.version,
        number=mark.number,
        state=mark.state,
        manifest_digest=bytes.fromhex(hex_of(mark.manifest_digest)),
        prev_hash=bytes.fromhex(hex_of(mark.prev_hash)),
    )


def _key_of(mark: Mark) -> str:
    return Keys(mark.namespace).mark(mark.model, mark.version, mark.number)
