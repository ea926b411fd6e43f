"""Publishing a version as an OCI artifact, and reading it back.

The artifact is an image manifest (image specification 1.1) of our artifact type:

    config      the origin: number, who registered it, signatures
    layers[0]   the registry's manifest, whose SHA-256 is the manifest digest
    layers[1:]  one blob a tensor, each once; empty tensors have none

Its bytes depend on the version alone, so a version has one digest in every OCI
registry. Blobs go first, each only where it is missing, then the manifest by its
digest, then the tag: whoever pulls gets all of a version or none.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliska.coordinator.registry.digest import Digest, digest_of, hex_of, is_digest
from pliska.coordinator.registry.errors import (
    IntegrityError,
    NotFoundError,
    RefusedError,
    RegistryConflictError,
    RegistryUsageError,
)
from pliska.coordinator.registry.manifest import MANIFEST_BYTES_MAX as INNER_BYTES_MAX
from pliska.coordinator.registry.manifest import Manifest, TensorEntry
from pliska.coordinator.registry.oci_client import MANIFEST_BYTES_MAX, MANIFEST_TYPE, OciClient
from pliska.coordinator.registry.oci_credentials import OciCredentials
from pliska.coordinator.registry.oci_reference import OciReference
from pliska.coordinator.registry.publication import (
    ORIGIN_BYTES_MAX,
    Publication,
    Receipt,
    origin_bytes,
    read_parts,
)
from pliska.coordinator.registry.tensor import Tensor
from pliska.coordinator.registry.tensor_file import CHUNK_BYTES

ARTIFACT_TYPE = "application/vnd.pliska.model.v1"
ORIGIN_TYPE = "application/vnd.pliska.origin.v1+json"
INNER_TYPE = "application/vnd.pliska.manifest.v1+json"
TENSOR_TYPE = "application/vnd.pliska.tensor.v1"


def publish_to_oci(
    publication: Publication,
    reference: OciReference,
    credentials: OciCredentials | None,
    *,
    tag_may_move: bool,
) -> Receipt:
    """Push a version and let the tag point at it.

    Args:
        publication: The version.
        reference: With the tag to set.
        credentials: Who we are to the registry; None for nobody.
        tag_may_move: Whether the tag may be there with another artifact, as one that
            follows an alias is.

    Raises:
        RegistryUsageError: The reference names a digest.
        RegistryConflictError: The tag is there with another artifact and may not move.
        RefusedError: The registry does not let us, or there are too many tensors.
        IntegrityError: The registry answered what it must not.
        DestinationError: The registry cannot be reached or failed; the tag was not moved.
    """
    if reference.tag is None:
        raise RegistryUsageError(f"{reference}: publish to a tag, HOST/NAME:TAG")
    return asyncio.run(_push(publication, reference, reference.tag, credentials, tag_may_move))


def read_from_oci(
    reference: OciReference, credentials: OciCredentials | None, folder: Path
) -> Publication:
    """Download a published version into files in `folder`, which the tensors then read.

    The tensors' bytes are not verified yet. Raises as `publish_to_oci`, and
    `NotFoundError` where there is no such artifact.
    """
    return asyncio.run(_pull(reference, credentials, folder))


@dataclass(frozen=True, slots=True)
class _Artifact:
    """What is pushed: the OCI manifest, and the blobs that it names."""

    content: bytes
    documents: Mapping[Digest, bytes]
    tensors: Mapping[Digest, Tensor]


def _artifact(publication: Publication) -> _Artifact:
    record, manifest = publication.record, publication.manifest
    origin, inner = origin_bytes(record), manifest.to_bytes()
    tensors = {each.digest: publication.tensors[each.name] for each in _stored(manifest).values()}
    layers = [_descriptor(INNER_TYPE, digest_of(inner), len(inner))]
    layers += [
        _descriptor(TENSOR_TYPE, digest, tensors[digest].type.nbytes) for digest in sorted(tensors)
    ]
    fields = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": _descriptor(ORIGIN_TYPE, digest_of(origin), len(origin)),
        "layers": layers,
        "annotations": {
            "org.opencontainers.image.title": f"{record.namespace}/{record.model}",
            "org.opencontainers.image.version": str(record.version),
            "org.opencontainers.image.created": record.registered_at,
        },
    }
    content = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    if len(content) > MANIFEST_BYTES_MAX:
        raise RefusedError(
            f"{record.name}: {len(tensors)} tensors are more than an OCI manifest of "
            f"{MANIFEST_BYTES_MAX} bytes can name"
        )
    documents = {digest_of(each): each for each in (origin, inner)}
    return _Artifact(content, documents, tensors)


def _stored(manifest: Manifest) -> dict[Digest, TensorEntry]:
    """Return the tensors that have a blob, one for each digest."""
    return {entry.digest: entry for entry in manifest.tensors if entry.type.nbytes}


def _descriptor(kind: str, digest: Digest, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest, "size": size}


async def _push(
    publication: Publication,
    reference: OciReference,
    tag: str,
    credentials: OciCredentials | None,
    tag_may_move: bool,
) -> Receipt:
    artifact = _artifact(publication)
    digest = digest_of(artifact.content)
    added = 0
    async with OciClient(reference, credentials) as client:
        tagged = await client.find_manifest(tag)
        if tagged not in (None, artifact.content) and not tag_may_move:
            raise RegistryConflictError(
                f"{reference} is another artifact; publish an alias (MODEL@ALIAS) to move a tag, "
                "or choose another tag"
            )
        if tagged == artifact.content:
            return Receipt(str(reference), digest, created=False, blobs_added=0)
        for name, content in artifact.documents.items():
            if not await client.has_blob(name):
                await client.upload_blob(name, content)
        for name, tensor in artifact.tensors.items():
            if not await client.has_blob(name):
                await client.upload_blob(name, await asyncio.to_thread(_bytes_of, tensor))
                added += 1
        await client.put_manifest(digest, artifact.content)
        await client.put_manifest(tag, artifact.content)
    return Receipt(str(reference), digest, created=True, blobs_added=added)


def _bytes_of(tensor: Tensor) -> bytes:
    return b"".join(tensor.chunks())


async def _pull(
    reference: OciReference, credentials: OciCredentials | None, folder: Path
) -> Publication:
    async with OciClient(reference, credentials) as client:
        content = await client.find_manifest(reference.digest or reference.tag or "")
        if content is None:
            raise NotFoundError(f"there is no {reference}")
        config, inner = _read_artifact(content, str(reference))
        record, manifest = read_parts(
            await _document(client, config, ORIGIN_BYTES_MAX),
            await _document(client, inner, INNER_BYTES_MAX),
            str(reference),
        )
        for entry in _stored(manifest).values():
            path = _file(folder, entry)
            with path.open("xb") as file:
                await client.download_blob(entry.digest, entry.type.nbytes, file.write)
    tensors = {entry.name: _tensor(folder, entry) for entry in manifest.tensors}
    return Publication(record, manifest, tensors)


def _read_artifact(content: bytes, what: str) -> tuple[Digest, Digest]:
    """Return the digests of the origin and of the manifest that an OCI manifest names."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{what}: its OCI manifest is not JSON") from error
    match fields:
        case {
            "artifactType": str(kind),
            "config": {"mediaType": str(origin_kind), "digest": str(config)},
            "layers": [{"mediaType": str(inner_kind), "digest": str(inner)}, *_],
        } if (
            (kind, origin_kind, inner_kind) == (ARTIFACT_TYPE, ORIGIN_TYPE, INNER_TYPE)
            and is_digest(config)
            and is_digest(inner)
        ):
            return Digest(config), Digest(inner)
    raise IntegrityError(f"{what} is not a model that Pliska published")


async def _document(client: OciClient, digest: Digest, bytes_max: int) -> bytes:
    chunks: list[bytes] = []
    await client.download_blob(digest, bytes_max, chunks.append)
    content = b"".join(chunks)
    if digest_of(content) != digest:
        raise IntegrityError(f"blob {digest} has another digest; do not use it")
    return content


def _file(folder: Path, entry: TensorEntry) -> Path:
    return folder / hex_of(entry.digest)


def _tensor(folder: Path, entry: TensorEntry) -> Tensor:
    def chunks() -> Iterator[bytes]:
        if not entry.type.nbytes:
            return
        with _file(folder, entry).open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    return Tensor(entry.type, chunks)
