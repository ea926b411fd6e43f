"""A version as it is published outside the registry: its origin, its manifest, its tensors.

A git repository (`git_publication`) and an OCI registry (`oci_publication`) hold
the same three things under their own names, and what comes back from either is
checked here before anything relies on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pliska.coordinator.registry.digest import digest_of
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import IntegrityError, RefusedError
from pliska.coordinator.registry.manifest import Manifest
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.tensor import Tensor
from pliska.coordinator.registry.versions import SIGNATURES_MAX, State, VersionRecord

FORMAT = "pliska-origin-1"
ORIGIN_BYTES_MAX = 64 * 1024
PUBLISHABLE = frozenset({State.READY, State.DEPRECATED})


@dataclass(frozen=True, slots=True)
class Publication:
    """One version, on its way out or in.

    Attributes:
        record: With its signatures; what became of the version here is not published.
        manifest: What its tensors are.
        tensors: By name; their bytes are read when they are asked for.
    """

    record: VersionRecord
    manifest: Manifest
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a version was published.

    Attributes:
        place: The tag, as a person names it.
        digest: Identity there: a commit, or the digest of an OCI manifest.
        created: Whether this call put it there; False where it was there.
        blobs_added: How many tensors were not there before.
    """

    place: str
    digest: str
    created: bool
    blobs_added: int


def publication_of(namespace: Namespace, record: VersionRecord) -> Publication:
    """Return a version of this registry, verified, ready to be published.

    Raises:
        RefusedError: It is not READY or DEPRECATED.
        IntegrityError: Its manifest or a signature is not what it should be.
    """
    if record.state not in PUBLISHABLE:
        raise RefusedError(f"{record.name} is {record.state}; only READY versions are published")
    manifest = namespace.verifier.manifest(record)
    tensors = {entry.name: namespace.blobs.tensor(entry) for entry in manifest.tensors}
    return Publication(record, manifest, tensors)


def origin_bytes(record: VersionRecord) -> bytes:
    """Return what of a version's record is published: what never changes, and signatures."""
    return canonical_bytes(
        {
            "format": FORMAT,
            "namespace": record.namespace,
            "model": record.model,
            "version": record.version,
            "manifest_digest": record.complete_manifest_digest(),
            "registered_at": record.registered_at,
            "registered_by": record.registered_by,
            "signatures": list(record.signatures),
        }
    )


def read_parts(origin: bytes, content: bytes, what: str) -> tuple[VersionRecord, Manifest]:
    """Read what was published of a version's record, and its manifest; neither is trusted.

    Raises:
        IntegrityError: One is malformed, or they are not of the same version.
    """
    manifest = Manifest.from_bytes(content, f"{what}: manifest")
    document = read_document(origin, ORIGIN_BYTES_MAX, f"{what}: origin")
    document.check_format(FORMAT)
    record = VersionRecord(
        namespace=document.text("namespace"),
        model=document.text("model"),
        version=document.integer("version", minimum=1),
        content_id=manifest.content_id,
        manifest_digest=document.digest("manifest_digest"),
        state=State.READY,
        state_reason="",
        parent=manifest.lineage.parent,
        tensors=len(manifest.tensors),
        nbytes=manifest.nbytes,
        registered_at=document.time("registered_at"),
        registered_by=document.text("registered_by"),
        signatures=document.texts("signatures", SIGNATURES_MAX),
    )
    document.finish()
    if record.manifest_digest != digest_of(content) or (record.namespace, record.model) != (
        manifest.namespace,
        manifest.model,
    ):
        raise IntegrityError(f"{what}: its origin and its manifest are of different versions")
    return record, manifest
