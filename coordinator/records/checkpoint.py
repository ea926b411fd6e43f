"""Checkpoints: the whole training state of one committed version, in files that prove themselves.

A checkpoint is a folder `jobs/JOB/checkpoints/VERSION-RECORD/` of safetensors
files, the state's own manifest with the leaves of its hash tree, and a
`manifest.json` that is written last: without it the folder does not count. What
is read is compared with the state digest, so a damaged checkpoint is refused
with a reason and never restored. Called by the writer thread
(`checkpoint_writer`), by recovery, which decides whether the checkpoint's commit
record is on the chain, and by `donor`, which gives its bytes to who joins.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pliska.coordinator.errors import DamagedStateError, MissingObjectError, StorageError
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.state_manifest import StateManifest, in_order
from pliska.coordinator.training.tensor_file import data_offset, decode_tensors, encode_tensors
from pliska.coordinator.training.training_state import TrainingState

FORMAT = "pliska-checkpoint"
SCHEMA_VERSION = 2
MANIFEST_BYTES_MAX = 16 * 2**20
"""Largest manifest that is read."""
FILE_BYTES_TARGET = 256 * 2**20
"""A file is closed at this size; a larger tensor has a file of its own."""
FILE_BYTES_MAX = 64 * 2**30
"""Largest file that is read."""
FILES_MAX = 4096
"""Most files of one checkpoint that are read."""

_MANIFEST = "manifest.json"
_STATE_MANIFEST = "state.manifest"
_STATE_LEAVES = "state.leaves"
_PLACE = re.compile(r"(\d{12})-([0-9a-f]{16})")


def _anybody() -> None:
    """Let everybody write."""


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

    def write(
        self, checkpoint: Checkpoint, state: TrainingState, permit: Callable[[], None] = _anybody
    ) -> None:
        """Store the state; on return the checkpoint is complete and durable.

        Args:
            checkpoint: what the state is; its digest is taken as given and
                checked by `read`.
            state: on the CPU, not changed until this returns.
            permit: raises where the writer may not write any more; asked before
                each file.

        Raises:
            StorageError: the disk failed or is full, or others removed the checkpoint as
                superfluous while this process was paused; it does not count.
        """
        place = self.place(checkpoint.version, checkpoint.record_digest)
        sealed, leaves = state.sealed()
        files = []
        for number, tensors in enumerate(_split(state.tensors)):
            name = f"state-{number:05d}.safetensors"
            permit()
            self._storage.write(f"{place}/{name}", encode_tensors(tensors))
            files.append({"name": name, "bytes": self._storage.size(f"{place}/{name}")})
        permit()
        self._storage.write(f"{place}/{_STATE_MANIFEST}", [sealed.to_bytes()])
        self._storage.write(f"{place}/{_STATE_LEAVES}", [leaves])
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
        permit()
        self._storage.write(f"{place}/{_MANIFEST}", [text.encode()])
        self._require_whole(place)

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
        manifest = self._manifest(place)
        tensors: dict[str, torch.Tensor] = {}
        for name, size in manifest.files:
            file = f"{place}/{name}"
            found = self._storage.size(file)
            if found != size:
                what = "is missing" if found is None else f"has {found} bytes instead of {size}"
                raise DamagedStateError(f"{file} {what}")
            tensors |= decode_tensors(self._storage.read(file, FILE_BYTES_MAX))
        state = TrainingState(tensors, manifest.settings)
        if state.digest() != manifest.checkpoint.state_digest:
            raise DamagedStateError(f"{place}: its content does not have its state digest")
        return manifest.checkpoint, state

    def checkpoint(self, place: str) -> Checkpoint:
        """Say what one of `places` holds, by its manifest.

        Raises:
            DamagedStateError: the manifest is missing, altered, or not ours.
            StorageError: the disk failed.
        """
        return self._manifest(place).checkpoint

    def stored(self, place: str) -> "StoredState":
        """Open the bytes of a checkpoint's state for reading in parts; they are not checked.

        Raises:
            DamagedStateError: a file is missing, altered, or not ours.
            StorageError: the disk failed.
        """
        manifest = self._manifest(place)
        spans = []
        for name, size in manifest.files:
            file = f"{place}/{name}"
            start = data_offset(self._storage.read_range(file, 0, 8))
            spans.append((file, start, size - start))
        content = self._storage.read(f"{place}/{_STATE_MANIFEST}", MANIFEST_BYTES_MAX)
        sealed = StateManifest.from_bytes(content, manifest.checkpoint.state_digest)
        leaves = self._storage.read(f"{place}/{_STATE_LEAVES}", MANIFEST_BYTES_MAX)
        if sum(count for _, _, count in spans) != sealed.payload_len:
            raise DamagedStateError(f"{place}: its files are not as long as its state")
        return StoredState(self._storage, sealed, leaves, tuple(spans))

    def folders(self) -> list["Folder"]:
        """List what lies here, complete or not, newest version first; in one look."""
        by_place: dict[str, list[str]] = {}
        for name in self._storage.names(self._folder):
            place = name.rpartition("/")[0]
            if _PLACE.fullmatch(place.removeprefix(self._folder)):
                by_place.setdefault(place, []).append(name)
        return [self._opened(place, by_place[place]) for place in sorted(by_place, reverse=True)]

    def remove(self, folder: "Folder") -> None:
        """Remove a checkpoint, or what there is of it."""
        # The manifest goes first, also one that came since: half a checkpoint must not look whole.
        manifest = f"{folder.place}/{_MANIFEST}"
        for name in (manifest, *(each for each in folder.names if each != manifest)):
            self._storage.delete(name)

    def place(self, version: int, record_digest: bytes) -> str:
        """Return the folder of the checkpoint of this version and commit record."""
        return f"{self._folder}{version:012d}-{record_digest.hex()[:16]}"

    def version_of(self, place: str) -> int:
        """Return the version that one of `places` is of."""
        return int(place.removeprefix(self._folder).partition("-")[0])

    def _opened(self, place: str, names: Sequence[str]) -> "Folder":
        wanted = {f"{place}/{name}" for name in (_STATE_MANIFEST, _STATE_LEAVES)}
        is_whole = False
        if f"{place}/{_MANIFEST}" in names:
            with contextlib.suppress(DamagedStateError, MissingObjectError):
                wanted |= {f"{place}/{name}" for name, _ in self._manifest(place).files}
                is_whole = wanted <= {*names}
        return Folder(place, self.version_of(place), tuple(names), is_whole)

    def _require_whole(self, place: str) -> None:
        """Take back a checkpoint whose files were removed while the others were written."""
        folder = self._opened(place, self._storage.names(f"{place}/"))
        if not folder.is_whole:
            self.remove(folder)
            raise StorageError(f"{place}: it was removed while it was written")

    def _manifest(self, place: str) -> "_Manifest":
        manifest = _Manifest.parse(
            self._storage.read(f"{place}/{_MANIFEST}", MANIFEST_BYTES_MAX), place
        )
        checkpoint = manifest.checkpoint
        expected = self.place(checkpoint.version, checkpoint.record_digest)
        if manifest.job != self._job or expected != place:
            raise DamagedStateError(f"{place}: its manifest belongs elsewhere")
        return manifest


@dataclass(frozen=True, slots=True)
class Folder:
    """A checkpoint, or what there is of one.

    Attributes:
        version: That it is of.
        names: Of the objects in it.
        is_whole: Whether its manifest is there and every file that it names.
    """

    place: str
    version: int
    names: tuple[str, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class StoredState:
    """The bytes of one checkpoint's state, as they lie in its files.

    Attributes:
        manifest: The one that the commit record's state digest names.
        leaves: Of the hash tree under the manifest's root, joined; not checked.
    """

    storage: Storage
    manifest: StateManifest
    leaves: bytes
    spans: tuple[tuple[str, int, int], ...]

    def read_range(self, offset: int, count: int) -> bytes:
        """Return a part of the state's bytes, not checked.

        Raises:
            StorageError: it is gone, shorter than that, or the disk failed.
        """
        pieces = []
        for file, start, length in self.spans:
            if count and offset < length:
                taken = min(count, length - offset)
                pieces.append(self.storage.read_range(file, start + offset, taken))
                offset, count = 0, count - taken
            else:
                offset -= min(offset, length)
        if count:
            raise StorageError(f"the state ends {count} bytes before the part that was asked for")
        return b"".join(pieces)


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
    """Yield the tensors in the order of the state's bytes, in groups of `FILE_BYTES_TARGET`."""
    group: dict[str, torch.Tensor] = {}
    size = 0
    for name in in_order(tensors):
        if group and size + tensors[name].nbytes > FILE_BYTES_TARGET:
            yield group
            group, size = {}, 0
        group[name] = tensors[name]
        size += tensors[name].nbytes
    yield group
