"""Registering a version: reserve a number, store the files, then make it READY.

The order makes a crash at any point harmless: blobs under digests that nothing
refers to yet, or a PENDING number that the next registration of the same content
completes. Where storing fails, as on a full disk, the number is given up at once.
Readers see a version only when all of its files are durable.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from pliska.coordinator.errors import StorageError
from pliska.coordinator.registry.blobs import Blobs, hash_tensor
from pliska.coordinator.registry.errors import (
    NotFoundError,
    RegistryConflictError,
    RegistryError,
)
from pliska.coordinator.registry.lanes import in_lanes
from pliska.coordinator.registry.lineage import Lineage
from pliska.coordinator.registry.manifest import Manifest, TensorEntry
from pliska.coordinator.registry.marks import marked, next_mark
from pliska.coordinator.registry.signatures import sign_version, signer_ids
from pliska.coordinator.registry.sweeps import Sweeps
from pliska.coordinator.registry.tensor import Tensor
from pliska.coordinator.registry.version_store import Versions
from pliska.coordinator.registry.versions import State, StoredVersion, VersionRecord
from pliska.coordinator.wire.signing import Signer
from pliska.locks import Change, ConflictError, LockError, OutcomeUnknownError

ATTEMPTS_MAX = 20
REASON_CHARACTERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Registration:
    """What became of a registration.

    Attributes:
        version: The version with this content.
        created: Whether this call made it available; False where it was there.
    """

    version: VersionRecord
    created: bool


@dataclass(frozen=True, slots=True)
class Registrar:
    """Registers versions in one namespace.

    Attributes:
        registered_at: UTC time, ISO 8601.
        registered_by: Who registers.
    """

    versions: Versions
    blobs: Blobs
    sweeps: Sweeps
    namespace: str
    registered_at: str
    registered_by: str

    def register(
        self,
        model: str,
        tensors: Mapping[str, Tensor],
        metadata: Mapping[str, str],
        lineage: Lineage,
        signer: Signer | None,
    ) -> Registration:
        """Store the tensors as a version of the model; see `Registry.register`."""
        if lineage.parent is not None and lineage.parent not in self.versions.of_model(model):
            raise NotFoundError(f"parent: there is no version {lineage.parent} of {model!r}")
        names = sorted(tensors)
        digests = in_lanes(hash_tensor, [tensors[name] for name in names])
        manifest = Manifest(
            namespace=self.namespace,
            model=model,
            tensors=tuple(
                TensorEntry(name, tensors[name].type, digest)
                for name, digest in zip(names, digests, strict=True)
            ),
            metadata=metadata,
            lineage=lineage,
        )
        manifest.to_bytes()  # what cannot be written is refused before a number is taken
        for _ in range(ATTEMPTS_MAX):
            stored = self.versions.reserve(manifest, self.registered_at, self.registered_by)
            at_rest = self.sweeps.rest()  # before the first file is looked at
            try:
                self._put(manifest, tensors)
                wanted, also = self._wanted(stored, manifest, signer)
            except (RegistryError, StorageError) as error:
                self._give_up(stored, str(error))
                raise
            if wanted == stored.record:
                return Registration(wanted, created=False)
            try:
                self.versions.replace(stored, wanted, unless=[at_rest], also=also)
            except (ConflictError, OutcomeUnknownError):
                continue  # again: somebody else completed it, or we did, or files were removed
            return Registration(wanted, created=stored.record.state is State.PENDING)
        raise RegistryConflictError(f"the versions of {model!r} keep changing; try again")

    def _put(self, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
        """Store the tensors, those that are the same once."""
        different = {entry.digest: tensors[entry.name] for entry in manifest.tensors}
        in_lanes(lambda pair: self.blobs.put_tensor(pair[1], pair[0]), different.items())

    def _give_up(self, stored: StoredVersion, why: str) -> None:
        """Let a number go that failed for good, so that what was stored for it is garbage at once.

        Where that fails too, it stays PENDING, as after a crash.
        """
        if stored.record.state is not State.PENDING:
            return
        reason = f"its registration failed: {why}"[:REASON_CHARACTERS_MAX]
        gone = dataclasses.replace(stored.record, state=State.DELETED, state_reason=reason)
        with contextlib.suppress(LockError, RegistryError):
            self.versions.delete_content(stored, gone)

    def _wanted(
        self, stored: StoredVersion, manifest: Manifest, signer: Signer | None
    ) -> tuple[VersionRecord, list[Change]]:
        """Return the record as it should be: READY, and signed where a key is given.

        And what is written with it: its first mark, where it becomes READY by this.
        """
        record, also = stored.record, list[Change]()
        if record.state is State.PENDING:
            record = dataclasses.replace(
                record,
                manifest_digest=self.blobs.put_manifest(manifest),
                parent=manifest.lineage.parent,
                registered_at=self.registered_at,
                registered_by=self.registered_by,
            )
            mark = next_mark(
                record, State.READY, actor=self.registered_by, reason="", at=self.registered_at
            )
            record, also = marked(record, mark), [mark.creation()]
        if signer is not None and signer.key_id not in signer_ids(record):
            signature = sign_version(record, signer)
            record = dataclasses.replace(record, signatures=(*record.signatures, signature))
        return record, also
