"""Reading a version into memory, verified byte by byte, and given up when nobody wants it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.errors import IntegrityError, RegistryError
from pliska.coordinator.registry.lanes import in_lanes
from pliska.coordinator.registry.manifest import Manifest, TensorEntry
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.versions import VersionRecord


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A version whose every byte was verified.

    Attributes:
        version: Its record.
        manifest: What it consists of and where it comes from.
        tensors: C-order little-endian bytes by name; types are in the manifest.
    """

    version: VersionRecord
    manifest: Manifest
    tensors: Mapping[str, bytes]


class LoadAbandonedError(RegistryError):
    """Nobody wants this version any more."""


def load_record(
    namespace: Namespace,
    record: VersionRecord,
    is_wanted: Callable[[], bool] = lambda: True,
) -> LoadedModel:
    """Read a version into memory; every byte and signature is verified.

    Args:
        namespace: Where it is.
        record: The version.
        is_wanted: Asked before each tensor and in the end whether to go on, by any thread.

    Raises:
        RefusedError: It is PENDING.
        IntegrityError: Something of it is missing or was changed.
        LoadAbandonedError: It was not wanted any more.
    """
    manifest = namespace.verifier.manifest(record)

    def go_on() -> None:
        if not is_wanted():
            raise LoadAbandonedError(f"{record.name}: nobody wants it any more")

    def read(entry: TensorEntry) -> tuple[str, bytes]:
        go_on()
        return entry.name, namespace.blobs.read_tensor(entry)

    tensors = dict(in_lanes(read, manifest.tensors))
    go_on()
    return LoadedModel(record, manifest, tensors)


def find_record(namespace: Namespace, model: str, version: int, digest: Digest) -> VersionRecord:
    """Return the version that an alias or an operation names by number and manifest.

    Raises:
        IntegrityError: It is missing, or has another manifest than when it was named.
    """
    stored = namespace.versions.find(model, version)
    if stored is None or stored.record.manifest_digest != digest:
        raise IntegrityError(
            f"{model}:{version} is missing or has another manifest than {digest}; do not use it"
        )
    return stored.record
