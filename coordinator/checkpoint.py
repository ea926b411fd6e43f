"""Checkpoints: the whole training state of one committed version, in files that prove themselves.

A checkpoint is a folder `jobs/JOB/checkpoints/VERSION-RECORD/` of safetensors
files and a `manifest.json` that is written last: without it the folder does
not count. What is read is compared with the state digest, so a damaged
checkpoint is refused with a reason and never restored. Called by the writer
thread (`checkpoint_writer`) and by recovery, which decides whether the
checkpoint's commit record is on the chain.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.storage import Storage
from pliska.coordinator.tensor_file import decode_tensors, encode_tensors
from pliska.coordinator.training_state import TrainingState

FORMAT = "pliska-checkpoint"
SCHEMA_VERSION = 1
MANIFEST_BYTES_MAX = 16 * 2**20
"""Largest manifest that is read."""
FILE_BYTES_TARGET = 256 * 2**20
"""A file is closed at this size; a larger tensor has a file of its own."""
FILE_BYTES_MAX = 64 * 2**30
"""Largest file that is read."""
FILES_MAX = 4096
"""Most files of one checkpoint that are read."""

_MANIFEST = "manifest.json"
_PLACE = re.compile(r"(\d{12})-([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One stored checkpoint.

    Attributes:
        version: The model version that it holds.
        record_digest: Of the commit record that made the version, 32 bytes.
        state_digest: Of the training state, 32 bytes.
    """

    version: int
    record_digest: bytes
    state_digest: bytes


class CheckpointStore:
    """The checkpoints of one job. Reads and writes block on the disk; no thread of its own."""

    def __init__(self, storage: Storage, job: str) -> None:
        """Take the checkpoints of `job` in `storage`; nothing is read yet."""
        self._storage = storage
        self._job = job
        self._folder = f"jobs/{job}/checkpoints/"

    def write(self, checkpoint: Checkpoint, state: TrainingState) -> None:
        """Store the state; on return the checkpoint is complete and durable.

        Args:
            checkpoint: what the state is; its digest is taken as given and
                checked by `read`.
            state: on the CPU, not changed until this returns.

        Raises:
            StorageError: the disk failed or is full; the checkpoint does not count.
        """
        place = self.place(checkpoint.version, checkpoint.record_digest)
        files = []
        for number, tensors in enumerate(_split(state.tensors)):
            name = f"state-{number:05d}.safetensors"
            self._storage.write(f"{place}/{name}", encode_tensors(tensors))
            files.append({"name": name, "bytes": self._storage.size(f"{place}/{name}")})
        manifest = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "job": self._job,
            "version": checkpoint.version,
            "record_digest": checkpoint.record_digest.hex(),
            "state_digest": checkpoint.state_digest.hex(),
            "settings": dict(state.settings),
            "files": files,
        }
        text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False)
        self._storage.write(f"{place}/{_MANIFEST}", [text.encode()])

    def places(self) -> list[str]:
        """Return the folders of the complete checkpoints, newest version first."""
        found = []
        for name in self._storage.names(self._folder):
            place, _, file = name.rpartition("/")
            if file == _MANIFEST and _PLACE.fullmatch(place.removeprefix(self._folder)):
                found.append(place)
        return found[::-1]

    def read(self, place: str) -> tuple[Checkpoint, TrainingState]:
        """Read one of `places` and check all of it against its digest.

        Raises:
            DamagedStateError: a file is missing, cut short, altered, or not ours.
            StorageError: the disk failed.
        """
        manifest = _Manifest.parse(
            self._storage.read(f"{place}/{_MANIFEST}", MANIFEST_BYTES_MAX), place
        )
        checkpoint = manifest.checkpoint
        expected = self.place(checkpoint.version, checkpoint.record_digest)
        if manifest.job != self._job or expected != place:
            raise DamagedStateError(f"{place}: its manifest belongs elsewhere")
        tensors: dict[str, torch.Tensor] = {}
        for name, size in manifest.files:
            file = f"{place}/{name}"
            found = self._storage.size(file)
            if found != size:
                what = "is missing" if found is None else f"has {found} bytes instead of {size}"
                raise DamagedStateError(f"{file} {what}")
            tensors |= decode_tensors(self._storage.read(file, FILE_BYTES_MAX))
        state = TrainingState(tensors, manifest.settings)
        if state.digest() != checkpoint.state_digest:
            raise DamagedStateError(f"{place}: its content does not have its state digest")
        return checkpoint, state

    def prune(self, keep: int) -> list[str]:
        """Remove all but the `keep` newest complete checkpoints; return the folders removed.

        Folders without a manifest go too where a newer checkpoint is complete:
        a crash left them.
        """
        kept = self.places()[:keep]
        if not kept:
            return []
        removed = []
        by_place: dict[str, list[str]] = {}
        for name in self._storage.names(self._folder):
            by_place.setdefault(name.rpartition("/")[0], []).append(name)
        for place, names in by_place.items():
            if place in kept or place > kept[0]:
                continue
            # The manifest goes first: half a checkpoint must not look complete.
            for name in sorted(names, key=lambda name: not name.endswith(_MANIFEST)):
                self._storage.delete(name)
            removed.append(place)
        return removed

    def place(self, version: int, record_digest: bytes) -> str:
        """Return the folder of the checkpoint of this version and commit record."""
        return f"{self._folder}{version:012d}-{record_digest.hex()[:16]}"


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The fields of a manifest, each of the right type and in bounds."""

    job: str
    checkpoint: Checkpoint
    settings: Mapping[str, Any]
    files: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, content: bytes, place: str) -> "_Manifest":
        try:
            return cls._checked(json.loads(content))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedStateError(f"{place}: its manifest cannot be read: {error}") from error

    @classmethod
    def _checked(cls, document: Any) -> "_Manifest":
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
        if document["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"its schema version {document['schema_version']!r} is not ours")
        files = tuple((_file_name(each["name"]), int(each["bytes"])) for each in document["files"])
        if len(files) > FILES_MAX:
            raise ValueError(f"it lists {len(files)} files, more than {FILES_MAX}")
        if not isinstance(document["settings"], dict):
            raise TypeError("its settings are not a table")
        checkpoint = Checkpoint(
            version=int(document["version"]),
            record_digest=_digest(document["record_digest"]),
            state_digest=_digest(document["state_digest"]),
        )
        return cls(str(document["job"]), checkpoint, document["settings"], files)


def _digest(text: str) -> bytes:
    digest = bytes.fromhex(text)
    if len(digest) != 32:
        raise ValueError(f"a digest has {len(digest)} bytes")
    return digest


def _file_name(name: str) -> str:
    if re.fullmatch(r"state-\d{5}\.safetensors", name) is None:
        raise ValueError(f"it names a file {name[:40]!r}")
    return name


def _split(tensors: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the tensors in order of their names, in groups of about `FILE_BYTES_TARGET`."""
    group: dict[str, torch.Tensor] = {}
    size = 0
    for name in sorted(tensors):
        if group and size + tensors[name].nbytes > FILE_BYTES_TARGET:
            yield group
            group, size = {}, 0
        group[name] = tensors[name]
        size += tensors[name].nbytes
    yield group
