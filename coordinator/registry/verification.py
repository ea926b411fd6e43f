"""Checking a version against its digests and signatures before anything relies on it."""

from pliska.coordinator.registry.blobs import Blobs
from pliska.coordinator.registry.errors import IntegrityError
from pliska.coordinator.registry.lanes import in_lanes
from pliska.coordinator.registry.manifest import Manifest, TensorEntry
from pliska.coordinator.registry.signatures import verify_signatures
from pliska.coordinator.registry.versions import VersionRecord
from pliska.coordinator.wire.signing import KeyLookup


class Verifier:
    """Verifies the versions of one namespace.

    Args:
        blobs: Where the files are.
        publisher_key: Key id to the public key of an enrolled publisher, or None.
        signatures_min: How many publishers must have signed a version.
    """

    def __init__(self, blobs: Blobs, publisher_key: KeyLookup, signatures_min: int) -> None:
        self._blobs = blobs
        self._publisher_key = publisher_key
        self._signatures_min = signatures_min

    def manifest(self, record: VersionRecord) -> Manifest:
        """Return the version's manifest; its signatures and names are verified.

        Raises:
            RefusedError: The version is PENDING: its files are not all there yet.
            IntegrityError: The manifest or a signature is not what the record says.
        """
        record.complete_manifest_digest()
        verify_signatures(record, self._publisher_key, self._signatures_min)
        return self.unsigned_manifest(record)

    def unsigned_manifest(self, record: VersionRecord) -> Manifest:
        """Return the manifest of a version that may lack signatures yet, to sign it.

        Raises as `manifest` does, but for signatures.
        """
        digest = record.complete_manifest_digest()
        manifest = self._blobs.read_manifest(digest)
        if (manifest.namespace, manifest.model, manifest.content_id) != (
            record.namespace,
            record.model,
            record.content_id,
        ):
            raise IntegrityError(f"{record.name}: its manifest is another version's; do not use it")
        return manifest

    def every_byte(self, record: VersionRecord) -> None:
        """Read all of the version's files. Raises as `manifest` does, or where a file is bad."""

        def read(entry: TensorEntry) -> None:
            self._blobs.read_tensor(entry)  # and let go of it

        in_lanes(read, self.manifest(record).tensors)
