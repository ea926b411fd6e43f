"""A namespace's files: one blob a tensor and one manifest a version, under their digests.

Two versions that share a tensor share its blob. Everything is verified when it
is read, never trusted for being there; where the storage keeps several copies,
the next one is read where one is damaged. A namespace has files of its own, so
nothing that removes them can touch another's.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from pliska.coordinator.errors import (
    LinkedObjectError,
    MissingObjectError,
    ObjectTooLargeError,
    StorageError,
)
from pliska.coordinator.registry.digest import Digest, digest_from, digest_of, hex_of
from pliska.coordinator.registry.errors import IntegrityError
from pliska.coordinator.registry.manifest import MANIFEST_BYTES_MAX, Manifest, TensorEntry
from pliska.coordinator.registry.packed import pack
from pliska.coordinator.registry.packed_storage import PackedStorage
from pliska.coordinator.registry.removal import MovedFile, moved_file, moved_prefix, remove
from pliska.coordinator.registry.sweeps import Announcement
from pliska.coordinator.registry.tensor import Tensor, exactly
from pliska.coordinator.storage.mirrored_storage import MirroredStorage
from pliska.coordinator.storage.storage import Storage

PACKED_SHARE_MAX = 0.95
"""A tensor that does not shrink below this is not packed."""


@dataclass(frozen=True, slots=True)
class BlobFile:
    """A file that a version needs.

    Attributes:
        name: In the storage.
        digest: SHA-256 of its bytes.
        nbytes: How many those are.
    """

    name: str
    digest: Digest
    nbytes: int


class Blobs:
    """Reads and writes the files of one namespace. Safe to use from several processes."""

    def __init__(self, storage: Storage, namespace: str) -> None:
        self._storage = storage
        self._namespace = namespace

    def __str__(self) -> str:
        return str(self._storage)

    def copies(self) -> "tuple[Blobs, ...]":
        """Return each copy that the storage keeps, the preferred one first."""
        if not isinstance(self._storage, MirroredStorage):
            return (self,)
        return tuple(Blobs(copy, self._namespace) for copy in self._storage.copies)

    def put_tensor(self, tensor: Tensor, digest: Digest) -> None:
        """Store the tensor's bytes under `digest`; a sound blob that is there already is kept.

        A damaged blob is replaced, so registering a model again repairs it. The digest is
        compared once more, but for a tensor that is held: that one costs no second hash.

        Raises:
            IntegrityError: The tensor's bytes do not have that digest (its file
                changed meanwhile). Nothing was stored.
        """
        name = self._tensor_name(digest)
        if self.digest_fault(BlobFile(name, digest, tensor.type.nbytes)) is None:
            return
        chunks = exactly(tensor) if tensor.is_held else _verified(tensor, digest)
        self._storage.write(name, chunks)

    def read_tensor(self, entry: TensorEntry) -> bytes:
        """Return the tensor's C-order little-endian bytes, verified.

        Raises:
            IntegrityError: The blob is missing or does not have its digest.
        """
        what = f"tensor {entry.name!r} ({entry.digest})"
        name = self._tensor_name(entry.digest)
        return self._read(BlobFile(name, entry.digest, entry.type.nbytes), what)

    def tensor(self, entry: TensorEntry) -> Tensor:
        """Return the tensor; its bytes are read and verified when they are asked for."""

        def chunks() -> Iterator[bytes]:
            yield self.read_tensor(entry)

        return Tensor(entry.type, chunks)

    def packed(self, entry: TensorEntry) -> bytes | None:
        """Return a tensor packed; None where it is so already, or would not get smaller.

        Raises:
            IntegrityError: It is damaged.
        """
        name = self._tensor_name(entry.digest)
        if not entry.type.nbytes or all(store.is_packed(name) for store in self._packable()):
            return None
        packed = pack(self.read_tensor(entry), entry.type.item_bytes)
        return packed if len(packed) <= PACKED_SHARE_MAX * entry.type.nbytes else None

    def put_packed(self, entry: TensorEntry, packed: bytes, sweep: Announcement) -> None:
        """Put what `packed` returned in the place of a tensor, under an announced sweep."""
        for store in self._packable():
            store.put_packed(self._tensor_name(entry.digest), packed, partial(remove, sweep))

    def has_packed(self, entry: TensorEntry) -> bool:
        """Whether any copy has packed bytes of the tensor."""
        return any(store.has_packed(self._tensor_name(entry.digest)) for store in self._packable())

    def unpack(self, entry: TensorEntry, content: bytes, sweep: Announcement) -> None:
        """Undo `put_packed`, with what `read_tensor` returned, under an announced sweep."""
        name = self._tensor_name(entry.digest)
        for store in self._packable():
            if store.has_packed(name):
                store.put_unpacked(name, content, partial(remove, sweep))

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
        file = BlobFile(self._manifest_name(digest), digest, MANIFEST_BYTES_MAX)
        return Manifest.from_bytes(self._read(file, what), what)

    def files_of(self, manifest: Manifest) -> tuple[BlobFile, ...]:
        """Return the files of a version, its manifest's first, each once."""
        content = manifest.to_bytes()
        digest = digest_of(content)
        own = BlobFile(self._manifest_name(digest), digest, len(content))
        tensors = {
            entry.digest: BlobFile(self._tensor_name(entry.digest), entry.digest, entry.type.nbytes)
            for entry in manifest.tensors
        }
        return own, *tensors.values()

    def size_fault(self, file: BlobFile) -> str | None:
        """Say what its length tells against a file; None where that is as it should be."""
        try:
            size = self._storage.size(file.name)
        except LinkedObjectError:
            return "a symbolic link is in its place"
        if size is None:
            return "missing"
        return None if size == file.nbytes else f"{size} bytes instead of {file.nbytes}"

    def digest_fault(self, file: BlobFile) -> str | None:
        """Say what is wrong with a file, every byte of which is read; None where it is sound."""
        fault = self.size_fault(file)
        if fault is not None:
            return fault
        try:
            content = self._storage.read(file.name, file.nbytes)
        except (IntegrityError, MissingObjectError, ObjectTooLargeError) as error:
            return str(error)  # damaged where it is packed, or it changed this moment
        return None if digest_of(content) == file.digest else "its bytes have another digest"

    def copy_from(self, source: "Blobs", file: BlobFile) -> bool:
        """Put a copy's file here in the place of what is there; False where that one is bad too."""
        if source.digest_fault(file) is not None:
            return False
        content = source._read(file, file.name)  # noqa: SLF001 - another of our own kind
        self._storage.write(file.name, (content,))
        return True

    def files(self) -> list[str]:
        """Return the names of all files of this namespace, sorted."""
        prefixes = (f"{self._namespace}/manifests/", f"{self._namespace}/tensors/")
        return [name for prefix in prefixes for name in self._storage.names(prefix)]

    def moved(self) -> list[MovedFile]:
        """Return the files that sweepers moved away and left there."""
        names = self._storage.names(moved_prefix(self._namespace))
        return [moved for moved in map(moved_file, names) if moved is not None]

    def size(self, name: str) -> int | None:
        """Return a file's length in bytes; None where there is no such file."""
        try:
            return self._storage.size(name)
        except LinkedObjectError:
            return None

    def remove(self, name: str, sweep: Announcement) -> bool:
        """Remove a file that no version needs, under an announced sweep; False where it was gone.

        Raises:
            RegistryConflictError: The sweep was ended; the file is where it was.
        """
        return remove(sweep, self._storage, name)

    def put_back(self, moved: MovedFile) -> None:
        """Copy a file that was moved away to its place, in each copy that lacks it there."""
        for copy in self.copies():
            storage, size = copy._storage, copy.size(moved.name)  # noqa: SLF001 - our own kind
            if size is not None and copy.size(moved.place) is None:
                storage.write(moved.place, (storage.read(moved.name, size),))

    def forget(self, moved: MovedFile) -> bool:
        """Remove a file for good that was moved away."""
        return self._storage.delete(moved.name)

    def _read(self, file: BlobFile, what: str) -> bytes:
        """Return the bytes of the first copy that has them, of at most the length of the file."""
        failures: list[IntegrityError | StorageError] = []
        for copy in self.copies():
            try:
                return copy._read_here(file, what)  # noqa: SLF001 - another of our own kind
            except (IntegrityError, StorageError) as error:
                failures.append(error)
        unread = (each for each in failures if isinstance(each, StorageError))
        raise next(unread, failures[0])  # a copy that does not answer may have it

    def _read_here(self, file: BlobFile, what: str) -> bytes:
        try:
            content = self._storage.read(file.name, file.nbytes)
        except MissingObjectError as error:
            message = f"{what}: missing from the artifact storage ({file.name})"
            raise IntegrityError(message) from error
        except ObjectTooLargeError as error:
            raise IntegrityError(f"{what}: {error}") from error
        if digest_of(content) != file.digest:
            raise IntegrityError(f"{what}: its stored bytes have another digest; do not use them")
        return content

    def _packable(self) -> list[PackedStorage]:
        """Return the copies of the storage whose objects may be packed."""
        stores = [copy._storage for copy in self.copies()]  # noqa: SLF001 - our own kind
        return [store for store in stores if isinstance(store, PackedStorage)]

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
