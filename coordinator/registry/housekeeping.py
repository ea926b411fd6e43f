"""What a person does to keep a registry in order: sign, mark and pin versions, and let go of them.

A quarantine or a deprecation is a mark in the version's own history (see `marks`);
nodes that serve the version go on until their alias is moved. What a collection
removes is decided in `roots`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from pliska.coordinator.registry.collection import Collected, Collector
from pliska.coordinator.registry.document import timestamp
from pliska.coordinator.registry.errors import (
    NotFoundError,
    RefusedError,
    RegistryConflictError,
    RegistryUsageError,
)
from pliska.coordinator.registry.marks import marked, next_mark, refusal_to_mark, signed_mark
from pliska.coordinator.registry.names import check_model
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.pins import Pin
from pliska.coordinator.registry.requests import check_reason
from pliska.coordinator.registry.roots import Retention
from pliska.coordinator.registry.signatures import sign_version, signer_ids
from pliska.coordinator.registry.versions import (
    SIGNATURES_MAX,
    State,
    StoredVersion,
    VersionRecord,
)
from pliska.coordinator.wire.signing import Signer
from pliska.locks import ConflictError, OutcomeUnknownError

ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Marking:
    """What became of a wish to change a version's state.

    Attributes:
        version: As it is now.
        changed: Whether this call made it so; False where it was so already.
    """

    version: VersionRecord
    changed: bool


class Housekeeping:
    """Keeps one namespace in order.

    Args:
        namespace: Which.
        actor: Who does it.
    """

    def __init__(self, namespace: Namespace, actor: str) -> None:
        self._parts = namespace
        self._actor = actor

    def quarantine(
        self, model: str, version: int, reason: str, signers: Sequence[Signer] = ()
    ) -> Marking:
        """Let no alias be moved to the version any more, nor to what was trained from it.

        Raises:
            NotFoundError: There is no such version.
            RefusedError: It is not complete, or is being removed.
            IntegrityError: Its record and its marks disagree.
        """
        return self._mark(model, version, State.QUARANTINED, reason, signers)

    def deprecate(
        self, model: str, version: int, reason: str, signers: Sequence[Signer] = ()
    ) -> Marking:
        """Let aliases be moved to the version only where that is asked for in so many words.

        Raises:
            RefusedError: It is QUARANTINED, which is stricter; or as `quarantine`.
        """
        return self._mark(model, version, State.DEPRECATED, reason, signers)

    def reinstate(
        self, model: str, version: int, reason: str, signers: Sequence[Signer] = ()
    ) -> Marking:
        """Take a quarantine or a deprecation back.

        Raises:
            RefusedError: Fewer enrolled publishers sign it than have to sign a version; or
                as `quarantine`.
        """
        return self._mark(model, version, State.READY, reason, signers)

    def sign(self, model: str, version: int, signer: Signer) -> VersionRecord:
        """Vouch for a version, every byte of which is read first; a key signs it once.

        Raises:
            NotFoundError: There is no such version.
            RefusedError: It is not READY, or has as many signatures as a version can have.
            IntegrityError: Something of it is missing or was changed.
        """
        parts = self._parts
        for _ in range(ATTEMPTS_MAX):
            stored = self._find(model, version)
            record = stored.record
            if record.state is not State.READY:
                raise RefusedError(f"{record.name} is {record.state}; nobody signs it now")
            if signer.key_id in signer_ids(record):
                return record
            if len(record.signatures) >= SIGNATURES_MAX:
                raise RefusedError(f"{record.name} has {SIGNATURES_MAX} signatures already")
            for entry in parts.verifier.unsigned_manifest(record).tensors:
                parts.blobs.read_tensor(entry)
            signatures = (*record.signatures, sign_version(record, signer))
            signed = dataclasses.replace(record, signatures=signatures)
            try:
                parts.versions.replace(stored, signed)
            except (ConflictError, OutcomeUnknownError):
                continue  # look again: somebody else changed it, or we did
            return signed
        raise RegistryConflictError(f"{model}:{version} keeps changing; try again")

    def pin(self, model: str, version: int, reason: str) -> Pin:
        """Keep a version, whatever a collection is told; one that is pinned stays as it is.

        Raises:
            NotFoundError: There is no such version.
            RefusedError: It is not complete, or is being removed.
            RegistryConflictError: It changed meanwhile.
        """
        stored = self._find(model, version)
        if stored.record.state in (State.PENDING, State.DELETING, State.DELETED):
            raise RefusedError(f"pin {stored.record.name}: it is {stored.record.state}")
        at = timestamp(self._parts.now())
        pin = Pin(self._parts.name, model, version, check_reason(reason), self._actor, at)
        self._parts.pins.put(pin, stored.unmodified)
        return self._parts.pins.of_model(model)[version]

    def unpin(self, model: str, version: int) -> bool:
        """Take a pin away; False where the version was not pinned.

        Raises:
            NotFoundError: There is no such version.
        """
        self._find(model, version)
        return self._parts.pins.remove(model, version)

    def planned(self, retention: Retention) -> Collected:
        """Return what `collect` would remove now. Raises as `collect`."""
        return Collector(self._parts, retention, self._actor).plan()

    def collect(self, retention: Retention) -> Collected:
        """Remove the versions and files that nothing speaks for (see `collection`).

        Raises:
            RegistryConflictError: Another collection is under way.
            IntegrityError: A record or manifest is damaged; no file was removed.
        """
        return Collector(self._parts, retention, self._actor).collect()

    def _mark(
        self, model: str, version: int, state: State, reason: str, signers: Sequence[Signer]
    ) -> Marking:
        parts = self._parts
        if not check_reason(reason):
            raise RegistryUsageError("give a reason: it is what others read later")
        for _ in range(ATTEMPTS_MAX):
            stored = self._find(model, version)
            record = stored.record
            refusal = refusal_to_mark(record, state)
            if refusal is not None:
                raise RefusedError(f"{record.name} cannot become {state}: {refusal}")
            parts.marks.newest(record)
            if record.state is state:
                return Marking(record, changed=False)
            at = timestamp(parts.now())
            mark = next_mark(record, state, actor=self._actor, reason=reason, at=at)
            mark = signed_mark(mark, signers)
            if parts.marks.lacks_signatures(mark):
                raise RefusedError(
                    f"{record.name} becomes {state} again only with {parts.signatures_min} "
                    "signatures of enrolled publishers: --sign KEY, for each of them"
                )
            try:
                parts.versions.replace(stored, marked(record, mark), also=[mark.creation()])
            except (ConflictError, OutcomeUnknownError):
                continue  # look again: somebody else changed it, or we did
            return Marking(marked(record, mark), changed=True)
        raise RegistryConflictError(f"{model}:{version} keeps changing; try again")

    def _find(self, model: str, version: int) -> StoredVersion:
        stored = self._parts.versions.find(check_model(model), version)
        if stored is None:
            raise NotFoundError(f"no version {model}:{version}")
        return stored
