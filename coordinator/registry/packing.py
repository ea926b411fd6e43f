"""Packing cold versions: tensors that no version in use has take less room, and longer to load.

Cold is what nothing speaks for (see `roots`) and no alias ever pointed at, so that
packing is never on the way of a rollback. What is in use again is unpacked. Both
may be done at any time beside readers, who do not notice. Files are exchanged in lots,
each announced as a sweep is (see `sweeps`), so that nobody else exchanges or removes them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.lanes import in_lanes
from pliska.coordinator.registry.manifest import TensorEntry
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.roots import Retention, reasons_to_stay
from pliska.coordinator.registry.sweeps import Announcement
from pliska.coordinator.registry.usage import read_usage
from pliska.coordinator.registry.versions import State, VersionRecord

ALL_MOVES = 2**53
BATCH_BYTES = 256 * 1024 * 1024
"""Tensors that are held in memory at once, unless one is larger."""
STORED = frozenset({State.READY, State.DEPRECATED, State.QUARANTINED})


@dataclass(frozen=True, slots=True)
class Packed:
    """What became of it.

    Attributes:
        versions: The cold ones, by name.
        packed: How many tensors were packed by this.
        saved: How many bytes that saved.
        unpacked: How many tensors were unpacked, because they are in use again.
    """

    versions: tuple[str, ...]
    packed: int
    saved: int
    unpacked: int


def pack_cold(parts: Namespace, actor: str, age_min: timedelta) -> Packed:
    """Pack the tensors of cold versions, and unpack those of all others.

    Args:
        parts: The namespace.
        actor: Who does it.
        age_min: Younger versions are not cold, nor is the newest of a model.

    Raises:
        IntegrityError: A record, a manifest or a tensor is damaged.
        RegistryConflictError: Files are being removed, or packed by somebody else.
    """
    cold: dict[Digest, TensorEntry] = {}
    used: dict[Digest, TensorEntry] = {}
    names = []
    for record, is_cold in _versions(parts, age_min):
        entries = parts.blobs.read_manifest(record.complete_manifest_digest()).tensors
        (cold if is_cold else used).update({entry.digest: entry for entry in entries})
        if is_cold:
            names.append(record.name)
    packed, saved = _pack(parts, actor, [cold[digest] for digest in cold.keys() - used.keys()])
    return Packed(tuple(names), packed, saved, _unpack(parts, actor, list(used.values())))


def _pack(parts: Namespace, actor: str, entries: Sequence[TensorEntry]) -> tuple[int, int]:
    """Pack tensors; return how many it was worth it for, and the bytes that it saved."""
    count = saved = 0
    for batch in _batches(entries):
        packed = in_lanes(parts.blobs.packed, batch)
        made = [(e, each) for e, each in zip(batch, packed, strict=True) if each is not None]
        with _alone(parts, actor) as sweep:
            for entry, content in made:
                sweep.renew()
                parts.blobs.put_packed(entry, content, sweep)
                saved += entry.type.nbytes - len(content)
        count += len(made)
    return count, saved


def _unpack(parts: Namespace, actor: str, entries: Sequence[TensorEntry]) -> int:
    """Unpack those of the tensors that are packed; return how many."""
    packed = [entry for entry in entries if parts.blobs.has_packed(entry)]
    for batch in _batches(packed):
        contents = in_lanes(parts.blobs.read_tensor, batch)
        with _alone(parts, actor) as sweep:
            for entry, content in zip(batch, contents, strict=True):
                sweep.renew()
                parts.blobs.unpack(entry, content, sweep)
    return len(packed)


def _batches(entries: Sequence[TensorEntry]) -> Iterator[list[TensorEntry]]:
    """Yield the tensors in lots that fit into memory."""
    batch: list[TensorEntry] = []
    nbytes = 0
    for entry in entries:
        if batch and nbytes + entry.type.nbytes > BATCH_BYTES:
            yield batch
            batch, nbytes = [], 0
        batch.append(entry)
        nbytes += entry.type.nbytes
    if batch:
        yield batch


@contextmanager
def _alone(parts: Namespace, actor: str) -> Iterator[Announcement]:
    """Keep others from packing, unpacking or removing files, for as short as possible."""
    announcement = parts.sweeps.begin(actor)
    try:
        yield announcement
    finally:
        announcement.end()


def _versions(parts: Namespace, age_min: timedelta) -> Iterator[tuple[VersionRecord, bool]]:
    """Yield all versions whose files are there, and whether they are cold."""
    wish = Retention(keep_last=1, age_min=age_min, history=ALL_MOVES)
    for model in parts.versions.models():
        view = read_usage(parts, model)
        reasons = reasons_to_stay(parts.now(), view, wish)
        for number, record in view.versions.items():
            if record.state in STORED:
                yield record, reasons[number] is None
