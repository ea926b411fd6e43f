"""Whether everything that the records promise is there: `pliska model fsck` and `verify`.

Reads every record of a namespace, holds them against each other, and looks for the
files of every version in every copy that the storage keeps. It changes nothing;
`repaired` copies a file that one copy lacks or damaged from one that has it. What no
version names is not a problem but garbage, which `collection` removes.

Others may write meanwhile, so a problem counts only when it is there at a second look.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from pliska.coordinator.registry.approvals import approvers
from pliska.coordinator.registry.blobs import BlobFile, Blobs
from pliska.coordinator.registry.errors import IntegrityError, RegistryConflictError
from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.roots import uploads
from pliska.coordinator.registry.versions import State, VersionRecord

FaultOf = Callable[[Blobs, BlobFile], str | None]
"""Says what is wrong with a file of a copy: `Blobs.size_fault` or `Blobs.digest_fault`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be.

    Attributes:
        place: What is concerned, such as `digits:3` or `digits@prod`.
        what: What is wrong.
        file: The file that is missing or damaged; None where a record is.
        copy: In which copy, by its address; empty where a record is concerned.
        is_repaired: Whether the file was copied from another copy since.
    """

    place: str
    what: str
    file: BlobFile | None = None
    copy: str = ""
    is_repaired: bool = False


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was looked at, and what was found.

    Attributes:
        models: How many.
        versions: How many, those that were deleted included.
        aliases: How many.
        files: How many that versions need, counted in each copy.
        problems: By model, version and alias.
        garbage: Names of files that no version needs.
        garbage_nbytes: Their bytes.
        uploads: Versions that are being registered; what looks like garbage may be theirs.
    """

    models: int
    versions: int
    aliases: int
    files: int
    problems: tuple[Problem, ...]
    garbage: tuple[str, ...]
    garbage_nbytes: int
    uploads: tuple[VersionRecord, ...]

    @property
    def is_sound(self) -> bool:
        """Whether no problem is left."""
        return all(problem.is_repaired for problem in self.problems)


class Inspector:
    """Inspects one namespace.

    Args:
        namespace: Which.
        fault_of: How closely files are looked at.
    """

    def __init__(self, namespace: Namespace, fault_of: FaultOf = Blobs.size_fault) -> None:
        self._parts = namespace
        self._fault_of = fault_of
        self._sound: set[tuple[str, str]] = set()

    def inspect(self) -> Inspection:
        """Look at everything; at a file that several versions share, once."""
        parts = self._parts
        self._sound.clear()
        models = parts.versions.models()
        problems: list[Problem] = []
        records: list[VersionRecord] = []
        needed: dict[str, BlobFile] = {}
        aliases = 0
        for model in models:
            problems += _twice(partial(self._of_numbers, model))
            records += self._readable(model)
            names = parts.aliases.of_model(model)
            aliases += len(names)
            for alias in names:
                problems += _twice(partial(self._of_alias, model, alias))
            problems += _twice(partial(self._of_pins, model))
        for record in records:
            problems += self.version(record)
            needed |= {file.name: file for file in self._files(record)}
        garbage = tuple(name for name in parts.blobs.files() if name not in needed)
        copies = parts.blobs.copies()
        return Inspection(
            models=len(models),
            versions=len(records),
            aliases=aliases,
            files=len(needed) * len(copies),
            problems=tuple(problems),
            garbage=garbage,
            garbage_nbytes=sum(
                size for name in garbage if (size := parts.blobs.size(name)) is not None
            ),
            uploads=uploads(parts.now(), records),
        )

    def version(self, record: VersionRecord) -> list[Problem]:
        """Look at one version: its record, marks, manifest, signatures and files."""

        def look() -> Iterator[Problem]:
            found = self._parts.versions.find(record.model, record.version)
            if found is not None and found.record.state is not State.PENDING:
                yield from self._of_version(found.record)

        return _twice(look)

    def repaired(self, inspection: Inspection) -> Inspection:
        """Copy what one copy lacks from another that has it, every byte verified."""
        problems = tuple(map(self._repaired, inspection.problems))
        return dataclasses.replace(inspection, problems=problems)

    def _of_numbers(self, model: str) -> Iterator[Problem]:
        """Say which records of versions cannot be read, and which numbers have none."""
        numbers = []
        try:
            newest = self._parts.versions.newest(model)
        except IntegrityError as error:
            yield Problem(model, str(error))
            return
        for found in self._parts.backend.list(self._parts.keys.versions(model)).records:
            try:
                numbers.append(self._parts.versions.stored(found).record.version)
            except IntegrityError as error:
                numbers.append(_number(found.key))
                yield Problem(model, str(error))
        for number in sorted({*range(1, newest + 1)} ^ {*numbers}):
            yield Problem(f"{model}:{number}", "its record is missing, or beyond the newest number")

    def _readable(self, model: str) -> list[VersionRecord]:
        records = []
        for found in self._parts.backend.list(self._parts.keys.versions(model)).records:
            try:
                records.append(self._parts.versions.stored(found).record)
            except IntegrityError:
                continue  # told as a problem
        return records

    def _of_version(self, record: VersionRecord) -> Iterator[Problem]:
        try:
            self._parts.marks.of_version(record)
            self._parts.versions.with_content(record.model, record.content_id)
        except IntegrityError as error:
            yield Problem(record.name, str(error))
        if record.state is State.DELETED:
            return
        try:
            manifest = self._parts.verifier.manifest(record)
        except IntegrityError as error:
            yield Problem(record.name, str(error))
            return
        told = record.parent, record.tensors, record.nbytes
        if told != (manifest.lineage.parent, len(manifest.tensors), manifest.nbytes):
            yield Problem(record.name, "parent, tensors or bytes are not those of its manifest")
        own, *tensors = self._parts.blobs.files_of(manifest)
        for copy in self._parts.blobs.copies():
            yield from self._of_file(record.name, copy, own, Blobs.digest_fault)
            for file in tensors:
                yield from self._of_file(record.name, copy, file, self._fault_of)

    def _of_file(
        self, place: str, copy: Blobs, file: BlobFile, fault_of: FaultOf
    ) -> Iterator[Problem]:
        if (str(copy), file.name) in self._sound:
            return
        fault = fault_of(copy, file)
        if fault is None:
            self._sound.add((str(copy), file.name))
        else:
            yield Problem(place, f"{file.name}: {fault}", file, str(copy))

    def _files(self, record: VersionRecord) -> tuple[BlobFile, ...]:
        """Return what a version needs; nothing where its manifest cannot be read."""
        if record.manifest_digest is None or record.state is State.DELETED:
            return ()
        try:
            manifest = self._parts.blobs.read_manifest(record.manifest_digest)
        except IntegrityError:
            return ()  # told as a problem
        return self._parts.blobs.files_of(manifest)

    def _of_alias(self, model: str, alias: str) -> Iterator[Problem]:
        parts, place = self._parts, f"{model}@{alias}"
        try:
            state = parts.aliases.read(model, alias)
            parts.operations.open(model, alias)
            parts.operations.ended(model, alias)
        except (IntegrityError, RegistryConflictError) as error:
            yield Problem(place, str(error))
            return
        for entry in state.history[-1:]:
            stored = parts.versions.find(model, entry.to_version)
            if stored is None or stored.record.manifest_digest != entry.manifest_digest:
                yield Problem(place, f"version {entry.to_version} is missing or another one")
            elif stored.record.state is State.DELETED:
                yield Problem(place, f"version {entry.to_version} is DELETED")
            approvals = len(approvers(entry, parts.publisher_key))
            if approvals < parts.approvals_min:
                yield Problem(
                    place, f"{approvals} of {parts.approvals_min} approvals of what it points at"
                )

    def _of_pins(self, model: str) -> Iterator[Problem]:
        try:
            pins = self._parts.pins.of_model(model)
        except IntegrityError as error:
            yield Problem(model, str(error))
            return
        for number in pins:
            stored = self._parts.versions.find(model, number)
            if stored is None or stored.record.state is State.DELETED:
                yield Problem(f"{model}:{number}", "it is pinned, and is not there")

    def _repaired(self, problem: Problem) -> Problem:
        copies = self._parts.blobs.copies()
        lacking = next((copy for copy in copies if str(copy) == problem.copy), None)
        if problem.file is None or lacking is None:
            return problem
        for source in copies:
            if source is not lacking and lacking.copy_from(source, problem.file):
                return dataclasses.replace(problem, is_repaired=True)
        return problem


def _twice(look: Callable[[], Iterable[Problem]]) -> list[Problem]:
    """Return the problems of a look, if a second one has them too."""
    first = list(look())
    return [problem for problem in look() if problem in first] if first else []


def _number(key: str) -> int:
    """Return the number that the place of a version's record stands for; 0 for none."""
    name = key.rpartition("/")[2]
    return int(name) if name.isascii() and name.isdigit() else 0
