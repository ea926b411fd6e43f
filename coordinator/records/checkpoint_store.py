"""Checkpoints on disk, in files that prove themselves.

A checkpoint is a folder `jobs/JOB/checkpoints/VERSION-RECORD/` of safetensors
files, the state's own manifest with the leaves of its hash tree, and a
`manifest.json` that is written last: without it the folder does not count. What
is read is compared with the state digest, so a damaged checkpoint is refused
with a reason and never restored. Called by the writer thread
(`checkpoint_writer`), by recovery, which decides whether the checkpoint's commit
record is on the chain, and by `donor`, which gives its bytes to who joins.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from pliska.coordinator.errors import DamagedStateError, MissingObjectError, StorageError
from pliska.coordinator.records.checkpoint import (
    MANIFEST_BYTES_MAX,
    Checkpoint,
    CheckpointManifest,
)
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.state_manifest import StateManifest, in_order
from pliska.coordinator.training.tensor_file import data_offset, decode_tensors, encode_tensors
from pliska.coordinator.training.training_state import TrainingState

FILE_BYTES_TARGET = 256 * 2**20
"""A file is closed at this size; a larger tensor has a file of its own."""
FILE_BYTES_MAX = 64 * 2**30
"""Largest file that is read."""

_MANIFEST = "manifest.json"
_STATE_MANIFEST = "state.manifest"
_STATE_LEAVES = "state.leaves"
_PLACE = re.compile(r"(\d{12})-([0-9a-f]{16})")


def _anybody() -> None:
    """Let everybody write."""


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
            # 0 where others removed it already; that is found out when all is written.
            files.append((name, self._storage.size(f"{place}/{name}") or 0))
        permit()
        self._storage.write(f"{place}/{_STATE_MANIFEST}", [sealed.to_bytes()])
        self._storage.write(f"{place}/{_STATE_LEAVES}", [leaves])
        manifest = CheckpointManifest(self._job, checkpoint, state.settings, tuple(files))
        permit()
        self._storage.write(f"{place}/{_MANIFEST}", [manifest.to_bytes()])
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

    def _manifest(self, place: str) -> "CheckpointManifest":
        manifest = CheckpointManifest.parse(
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
