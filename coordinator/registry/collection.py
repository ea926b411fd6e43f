"""Garbage collection: versions that nothing speaks for, and files that no version refers to.

A version goes in two steps. It becomes DELETING, after which no alias can be
moved to it; then everything that may speak for it is read again, and it is put
back if something does, or becomes DELETED. Files are removed after that, under
an announced sweep (see `sweeps`): what no manifest of a version that is left
names, provided that no upload is under way. A crash leaves versions DELETING or
files too many, both of which the next collection finishes. What must stay is
decided in `roots`.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from pliska.coordinator.registry.document import timestamp
from pliska.coordinator.registry.marks import marked, next_mark
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.roots import Retention, reasons_to_stay, uploads
from pliska.coordinator.registry.usage import read_usage
from pliska.coordinator.registry.versions import State, StoredVersion, VersionRecord
from pliska.locks import ConflictError


@dataclass(frozen=True, slots=True)
class Fate:
    """What a collection does, or would do, about one version.

    Attributes:
        reason: Why it stays; None: it goes.
    """

    version: VersionRecord
    reason: str | None


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection did, or would do.

    Attributes:
        fates: Of every version that could be removed, by model and number.
        files: Names of the files that went.
        nbytes: How many bytes those had.
        held_by: Uploads under way, because of which no file was removed.
    """

    fates: tuple[Fate, ...]
    files: tuple[str, ...]
    nbytes: int
    held_by: tuple[VersionRecord, ...]


class Collector:
    """Collects the garbage of one namespace. Safe beside writers and other collectors."""

    def __init__(self, namespace: Namespace, retention: Retention, actor: str) -> None:
        self._parts = namespace
        self._retention = retention
        self._actor = actor

    def plan(self) -> Collected:
        """Return what `collect` would do now; change nothing.

        Raises:
            IntegrityError: A record is damaged: nobody knows what it spoke for.
        """
        fates = tuple(self._fates())
        going = {
            (fate.version.model, fate.version.version) for fate in fates if fate.reason is None
        }
        return self._files(fates, going)

    def collect(self) -> Collected:
        """Remove what nothing speaks for.

        Raises:
            RegistryConflictError: Another sweep is under way.
            IntegrityError: A record or manifest is damaged; no file was removed.
        """
        self._parts.sweeps.require_none()  # before any version goes
        fates = tuple(self._retire(fate) for fate in self._fates())
        sweep = self._parts.sweeps.begin(self._actor)
        try:
            self._tidy_moved()
            collected = self._files(fates, set())
            for name in collected.files:
                sweep.renew()
                self._parts.blobs.remove(name, sweep)
        finally:
            sweep.end()
        return collected

    def _fates(self) -> Iterator[Fate]:
        for model in self._parts.versions.models():
            view = read_usage(self._parts, model)
            reasons = reasons_to_stay(self._parts.now(), view, self._retention)
            yield from (Fate(view.versions[number], reason) for number, reason in reasons.items())

    def _retire(self, fate: Fate) -> Fate:
        """Make a version DELETED, unless something spoke for it at the last moment."""
        if fate.reason is not None:
            return fate
        before = self._stored(fate.version)
        try:
            announced = self._announce(before)
            reasons = reasons_to_stay(
                self._parts.now(), read_usage(self._parts, fate.version.model), self._retention
            )
            reason = reasons.get(fate.version.version)
            if reason is None:
                return Fate(self._delete(announced), None)
            self._parts.versions.replace(announced, self._put_back(before))
        except ConflictError:
            reason = "it changed meanwhile"
        return Fate(self._stored(fate.version).record, reason)

    def _announce(self, stored: StoredVersion) -> StoredVersion:
        if stored.record.state is State.DELETING:
            return stored
        reason = f"{stored.record.state} until {self._actor} removed it"
        announced = dataclasses.replace(stored.record, state=State.DELETING, state_reason=reason)
        self._parts.versions.delete_content(stored, announced)
        return self._stored(stored.record)

    def _delete(self, announced: StoredVersion) -> VersionRecord:
        mark = next_mark(
            announced.record,
            State.DELETED,
            actor=self._actor,
            reason=announced.record.state_reason,
            at=timestamp(self._parts.now()),
        )
        gone = marked(announced.record, mark)
        self._parts.versions.replace(announced, gone, also=[mark.creation()])
        return gone

    def _put_back(self, before: StoredVersion) -> VersionRecord:
        """Return the record as it was; its newest mark knows, where a crash left it DELETING."""
        if before.record.state is not State.DELETING:
            return before.record
        mark = self._parts.marks.newest(before.record)
        return dataclasses.replace(before.record, state=mark.state, state_reason=mark.reason)

    def _stored(self, record: VersionRecord) -> StoredVersion:
        stored = self._parts.versions.find(record.model, record.version)
        if stored is None:
            raise AssertionError("records of versions are never removed")
        return stored

    def _tidy_moved(self) -> None:
        """See to what sweepers left that died when they had just moved a file away.

        It is put back unread: if no version needs it, it goes as any other file.
        """
        for file in self._parts.blobs.moved():
            self._parts.blobs.put_back(file)
            if file.is_forgotten(self._parts.now()):
                self._parts.blobs.forget(file)

    def _files(self, fates: tuple[Fate, ...], going: set[tuple[str, int]]) -> Collected:
        """Find the files that no version names but those in `going`."""
        parts = self._parts
        records = [
            stored.record
            for model in parts.versions.models()
            for stored in parts.versions.of_model(model).values()
        ]
        held_by = uploads(parts.now(), records)
        if held_by:
            return Collected(fates, (), 0, held_by)
        needed = self._needed(
            record for record in records if (record.model, record.version) not in going
        )
        files = tuple(name for name in parts.blobs.files() if name not in needed)
        return Collected(fates, files, sum(parts.blobs.size(name) or 0 for name in files), ())

    def _needed(self, records: Iterator[VersionRecord]) -> frozenset[str]:
        needed: set[str] = set()
        for record in records:
            if record.manifest_digest is not None and record.state is not State.DELETED:
                manifest = self._parts.blobs.read_manifest(record.manifest_digest)
                needed |= {file.name for file in self._parts.blobs.files_of(manifest)}
        return frozenset(needed)
