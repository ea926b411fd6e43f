"""A namespace's files: one blob a tensor and one manifest a version, under their digests.

Two versions that share a tensor share its blob. Everything is verified when it
is read, never trusted for being there. A namespace has files of its own, so
nothing that removes them can touch another's.
"""

import hashlib
from collections.abc import Iterator

from pliska.coordinator.errors import MissingObjectError, ObjectTooLargeError
from pliska.coordinator.registry.digest import Digest, digest_from, digest_of, hex_of
from pliska.coordinator.registry.errors import IntegrityError
from pliska.coordinator.registry.manifest import MANIFEST_BYTES_MAX, Manifest, TensorEntry
from pliska.coordinator.registry.tensor import Tensor, exactly
from pliska.coordinator.storage import Storage


class Blobs:
    """Reads and writes the files of one namespace. Safe to use from several processes."""

    def __init__(self, storage: Storage, namespace: str) -> None:
        self._storage = storage
        self._namespace = namespace

    def put_tensor(self, tensor: Tensor, digest: Digest) -> None:
        """Store the tensor's bytes under `digest`; a sound blob that is there already is kept.

        A damaged blob is replaced, so registering a model again repairs it.

        Raises:
            IntegrityError: The tensor's bytes do not have that digest (its file
                changed meanwhile). Nothing was stored.
        """
        name = self._tensor_name(digest)
        if self._storage.size(name) == tensor.type.nbytes and digest == digest_of(
            self._storage.read(name, tensor.type.nbytes)
        ):
            return
        self._storage.write(name, _verified(tensor, digest))

    def read_tensor(self, entry: TensorEntry) -> bytes:
        """Return the tensor's C-order little-endian bytes, verified.

        Raises:
            IntegrityError: The blob is missing or does not have its digest.
        """
        what = f"tensor {entry.name!r} ({entry.digest})"
        content = self._read(self._tensor_name(entry.digest), entry.type.nbytes, what)
        if digest_of(content) != entry.digest:
            raise IntegrityError(f"{what}: its stored bytes have another digest; do not use them")
        return content

    def tensor(self, entry: TensorEntry) -> Tensor:
        """Return the tensor; its bytes are read and verified when they are asked for."""

        def chunks() -> Iterator[bytes]:
            yield self.read_tensor(entry)

        return Tensor(entry.type, chunks)

    def put_manifest(self, manifest: Manifest) -> Digest:
        """Store the manifest and return its digest. Its tensors must be stored before."""
        content = manifest.to_bytes()
        digest = digest_of(content)
        self._storage.write(self._manifest_name(digest), (content,))
        return digest

    def read_manifest(self, digest: Digest) -> Manifest:
        """Return the manifest, verified.

        Raises:
            IntegrityError: It is missing, does not have its digest, or is not a manifest.
        """
        what = f"manifest {digest}"
        content = self._read(self._manifest_name(digest), MANIFEST_BYTES_MAX, what)
        if digest_of(content) != digest:
            raise IntegrityError(f"{what}: its stored bytes have another digest; do not use them")
        return Manifest.from_bytes(content, what)

    def files_of(self, manifest: Manifest) -> frozenset[str]:
        """Return the names of the files of a version's tensors."""
        return frozenset(self._tensor_name(entry.digest) for entry in manifest.tensors)

    def manifest_file(self, digest: Digest) -> str:
        """Return the name of a manifest's file."""
        return self._manifest_name(digest)

    def files(self) -> list[str]:
        """Return the names of all files of this namespace, sorted."""
        prefixes = (f"{self._namespace}/manifests/", f"{self._namespace}/tensors/")
        return [name for prefix in prefixes for name in self._storage.names(prefix)]

    def size(self, name: str) -> int | None:
        """Return a file's length in bytes; None where there is no such file."""
        return self._storage.size(name)

    def remove(self, name: str) -> bool:
        """Remove a file that no version needs; False where it was gone."""
        return self._storage.delete(name)

    def _read(self, name: str, bytes_max: int, what: str) -> bytes:
        try:
            return self._storage.read(name, bytes_max)
        except MissingObjectError as error:
            raise IntegrityError(f"{what}: missing from the artifact storage ({name})") from error
        except ObjectTooLargeError as error:
            raise IntegrityError(f"{what}: {error}") from error

    def _tensor_name(self, digest: Digest) -> str:
        return f"{self._namespace}/tensors/{hex_of(digest)[:2]}/{hex_of(digest)}"

    def _manifest_name(self, digest: Digest) -> str:
        return f"{self._namespace}/manifests/{hex_of(digest)}.json"


def hash_tensor(tensor: Tensor) -> Digest:
    """Return the digest of the tensor's bytes."""
    hasher = hashlib.sha256()
    for chunk in exactly(tensor):
        hasher.update(chunk)
    return digest_from(hasher.hexdigest())


def _verified(tensor: Tensor, digest: Digest) -> Iterator[bytes | memoryview]:
    """Yield the tensor's bytes and raise before the end unless they have `digest`."""
    hasher = hashlib.sha256()
    for chunk in exactly(tensor):
        hasher.update(chunk)
        yield chunk
    if digest_from(hasher.hexdigest()) != digest:
        raise IntegrityError("the tensors changed while they were registered; register again")
