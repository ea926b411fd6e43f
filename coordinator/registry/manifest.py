"""The manifest: what a version consists of, and where it comes from.

The content id is the SHA-256 of the canonical list of tensors (name, dtype,
shape, SHA-256 of the C-order little-endian bytes), so the same tensors have the
same id however they were saved. The manifest digest is the SHA-256 of the whole
document, lineage included; it is what aliases and signatures point at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pliska.coordinator.registry.digest import Digest, digest_of, parse_digest
from pliska.coordinator.registry.document import canonical_bytes, read_document
from pliska.coordinator.registry.errors import IntegrityError
from pliska.coordinator.registry.lineage import Lineage
from pliska.coordinator.registry.tensor import TensorType, is_tensor_name
from pliska.coordinator.registry.tensor_file import METADATA_ENTRIES_MAX, TENSORS_MAX

MANIFEST_BYTES_MAX = 64 * 1024 * 1024
FORMAT = "pliska-manifest-1"
_CONTENT_FORMAT = "pliska-content-1"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a version.

    Attributes:
        name: As in the file it was registered from.
        type: dtype and shape.
        digest: SHA-256 of its C-order little-endian bytes.
    """

    name: str
    type: TensorType
    digest: Digest

    def to_item(self) -> list[Any]:
        """Return the JSON form: name, dtype, shape, digest."""
        return [self.name, self.type.dtype, list(self.type.shape), self.digest]

    @classmethod
    def from_item(cls, item: Any, what: str) -> "TensorEntry":
        """Read the JSON form. Raises `IntegrityError` where it is not one."""
        match item:
            case [str(name), str(dtype), list(shape), str(digest)] if is_tensor_name(name) and all(
                type(length) is int for length in shape
            ):
                return cls(name, TensorType(dtype, tuple(shape)), parse_digest(digest, what))
        raise IntegrityError(f"{what}: a tensor must be its name, dtype, shape and digest")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one version consists of.

    Attributes:
        namespace: With `model`: a manifest is not valid under another name.
        model: The model's name.
        tensors: Sorted by name, each name once.
        metadata: Free-form texts of the file that it was registered from.
        lineage: Where it comes from.
    """

    namespace: str
    model: str
    tensors: tuple[TensorEntry, ...]
    metadata: Mapping[str, str]
    lineage: Lineage

    @property
    def content_id(self) -> Digest:
        """Identity of the tensors alone."""
        items = [entry.to_item() for entry in self.tensors]
        return digest_of(canonical_bytes({"format": _CONTENT_FORMAT, "tensors": items}))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.type.nbytes for entry in self.tensors)

    def to_bytes(self) -> bytes:
        """Return the canonical form, whose digest is the manifest digest."""
        return canonical_bytes(
            {
                "format": FORMAT,
                "namespace": self.namespace,
                "model": self.model,
                "tensors": [entry.to_item() for entry in self.tensors],
                "metadata": dict(self.metadata),
                "lineage": self.lineage.to_fields(),
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "Manifest":
        """Read the canonical form; the caller compares its digest and its names.

        Raises:
            IntegrityError: It is not a manifest, or of a format that is not known here.
        """
        document = read_document(content, MANIFEST_BYTES_MAX, what)
        document.check_format(FORMAT)
        items = document.items("tensors", TENSORS_MAX)
        manifest = cls(
            namespace=document.text("namespace"),
            model=document.text("model"),
            tensors=tuple(TensorEntry.from_item(item, what) for item in items),
            metadata=document.text_map("metadata", METADATA_ENTRIES_MAX),
            lineage=Lineage.from_document(document.document("lineage")),
        )
        document.finish()
        names = [entry.name for entry in manifest.tensors]
        if not names or names != sorted(set(names)):
            raise document.bad("tensors", "at least one, sorted by name, each name once")
        return manifest
