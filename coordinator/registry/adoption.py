"""Taking a version that was published elsewhere into this registry.

It becomes a version of the same model under the next number here, with the
lineage that it came with, but for its parent: numbers of another registry mean
nothing here. For the same reason its signatures count once, now, and whoever
adopts it may sign it for this registry.
"""

import dataclasses
import hashlib
from collections.abc import Iterator

from pliska.coordinator.registry.digest import Digest, digest_from
from pliska.coordinator.registry.errors import IntegrityError
from pliska.coordinator.registry.publication import Publication
from pliska.coordinator.registry.registration import Registration
from pliska.coordinator.registry.registry import Registry
from pliska.coordinator.registry.signatures import verify_signatures
from pliska.coordinator.registry.tensor import Tensor
from pliska.coordinator.wire.signing import Signer


def adopt(
    registry: Registry, publication: Publication, *, actor: str, signer: Signer | None = None
) -> Registration:
    """Register what was published, every byte and signature of it verified.

    Args:
        registry: Where to; the same tensors are the same version, as in `register`.
        publication: From `read_from_git` or `read_from_oci`.
        actor: Who does it.
        signer: Signs the version here.

    Raises:
        IntegrityError: A tensor is not what the manifest says, or too few enrolled
            publishers signed it. Nothing was registered.
    """
    record, manifest = publication.record, publication.manifest
    parts = registry.namespace
    verify_signatures(record, parts.publisher_key, parts.signatures_min)
    tensors = {
        entry.name: _checked(publication.tensors[entry.name], entry.digest, record.name)
        for entry in manifest.tensors
    }
    return registry.register(
        record.model,
        tensors,
        actor=actor,
        metadata=manifest.metadata,
        lineage=dataclasses.replace(manifest.lineage, parent=None),
        signer=signer,
    )


def _checked(tensor: Tensor, digest: Digest, what: str) -> Tensor:
    """Return the tensor; reading it to its end raises where its bytes have another digest."""

    def chunks() -> Iterator[bytes | memoryview]:
        hasher = hashlib.sha256()
        for chunk in tensor.chunks():
            hasher.update(chunk)
            yield chunk
        if digest_from(hasher.hexdigest()) != digest:
            raise IntegrityError(f"{what}: a published tensor is not {digest}; do not use it")

    return Tensor(tensor.type, chunks)
