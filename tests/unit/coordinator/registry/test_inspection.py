"""An inspection finds every kind of damage, nothing else, and repairs files from another copy."""

import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pliska.coordinator.registry import Inspection, Reference, Retention, State
from pliska.coordinator.registry.digest import hex_of
from pliska.coordinator.registry.keys import Keys
from pliska.coordinator.storage.mirrored_storage import MirroredStorage
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import Backend

KEYS = Keys("default")


@pytest.fixture
def whole(desk: Any) -> Any:
    """Return a registry with everything in it: versions, one gone, moves, a pin, marks."""
    desk.register(1, 2, 3, 4)
    desk.promote(2, 3)
    keep = desk.registry.housekeeping("ann")
    keep.pin("digits", 2, "paper")
    keep.collect(Retention(keep_last=1))
    assert desk.registry.versions("digits")[0].state is State.DELETED
    desk.registry.rollback(desk.rollback())
    return desk


def inspect(desk: Any, *, deep: bool = True) -> Inspection:
    found: Inspection = desk.registry.inspector(reads_every_byte=deep).inspect()
    return found


def told(inspection: Inspection) -> list[tuple[str, str]]:
    return [(problem.place, problem.what) for problem in inspection.problems]


def path_of(desk: Any, top: Path, name: str = "head", version: int = 3) -> Path:
    manifest = desk.registry.manifest(desk.registry.versions("digits")[version - 1])
    (digest,) = (hex_of(entry.digest) for entry in manifest.tensors if entry.name == name)
    return top / "default/tensors" / digest[:2] / digest


def edit(backend: Backend, key: str, **fields: object) -> None:
    record = backend.get(key)
    assert record is not None
    document = {**json.loads(record.value), **fields}
    value = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    backend.update(key, value, record.modified)


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_registry_has_no_problem(whole: Any, deep: bool) -> None:
    inspection = inspect(whole, deep=deep)
    assert inspection.is_sound
    assert inspection == Inspection(1, 4, 1, 7, (), (), 0, ())


def test_an_empty_namespace_is_sound(desk: Any) -> None:
    assert inspect(desk) == Inspection(0, 0, 0, 0, (), (), 0, ())


def test_a_missing_file_a_short_one_and_a_changed_byte_are_told_apart(
    whole: Any, tmp_path: Path
) -> None:
    path = path_of(whole, tmp_path / "artifacts")
    content = path.read_bytes()
    flipped = bytes([content[0] ^ 1]) + content[1:]
    for damaged, what in ((content[:-1], "7 bytes instead of 8"), (flipped, "another digest")):
        path.write_bytes(damaged)
        ((place, why),) = told(inspect(whole))
        assert place == "digits:3"
        assert what in why
    assert inspect(whole, deep=False).problems == (), "the length is right"
    path.unlink()
    ((place, why),) = told(inspect(whole, deep=False))
    assert (place, why.rpartition(": ")[2]) == ("digits:3", "missing")
    path.symlink_to(tmp_path)
    assert "symbolic link" in told(inspect(whole, deep=False))[0][1]


def test_a_damaged_manifest_is_found_without_reading_tensors(whole: Any, tmp_path: Path) -> None:
    digest = whole.registry.versions("digits")[2].manifest_digest
    path = tmp_path / "artifacts/default/manifests" / f"{hex_of(digest)}.json"
    path.write_bytes(path.read_bytes().replace(b"F32", b"I32"))
    ((place, why),) = told(inspect(whole, deep=False))
    assert place == "digits:3"
    assert digest in why


def test_files_that_no_version_names_are_garbage_and_no_problem(whole: Any, tmp_path: Path) -> None:
    extra = tmp_path / "artifacts/default/tensors/zz"
    extra.mkdir(parents=True)
    (extra / "extra").write_bytes(b"12345")
    inspection = inspect(whole)
    assert inspection.problems == ()
    assert inspection.garbage == ("default/tensors/zz/extra",)
    assert inspection.garbage_nbytes == 5
    whole.registry.load(Reference.parse("digits@prod"))
    whole.registry.housekeeping("ann").collect(Retention())
    assert inspect(whole).garbage == ()


@pytest.mark.parametrize(
    ("key", "fields", "place", "what"),
    [
        (KEYS.version("digits", 3), {"state": "READY"}, "digits:3", "something else than a mark"),
        (KEYS.version("digits", 3), {"nbytes": 1}, "digits:3", "not those of its manifest"),
        (KEYS.version("digits", 3), {"more": 1}, "digits", "unknown fields more"),
        (KEYS.version("digits", 3), {"version": 2}, "digits", "another record"),
        (KEYS.mark("digits", 1, 1), {"actor": "mallory"}, "digits:1", "mark 1"),
        (KEYS.model("digits"), {"newest": 5}, "digits:5", "its record is missing"),
        (KEYS.model("digits"), {"newest": 3}, "digits:4", "beyond the newest"),
        (KEYS.model("digits"), {"model": "other"}, "digits", "another model"),
        (KEYS.alias("digits", "prod"), {"version": 3}, "digits@prod", "something else than a move"),
        (KEYS.history_entry("digits", "prod", 1), {"reason": "x"}, "digits@prod", "not follow"),
        (KEYS.pin("digits", 2), {"version": 3}, "digits", "another record"),
    ],
)  # fmt: skip
def test_a_record_changed_by_hand_is_found(
    whole: Any, key: str, fields: dict[str, object], place: str, what: str
) -> None:
    edit(whole.backend, key, **fields)
    found = told(inspect(whole))
    assert any(each == place and what in why for each, why in found), found


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (KEYS.version("digits", 4), "digits:4"),
        (KEYS.mark("digits", 4, 1), "digits:4"),
        (KEYS.history_entry("digits", "prod", 2), "digits@prod"),
    ],
)
def test_a_record_that_was_removed_is_missed(whole: Any, key: str, place: str) -> None:
    whole.backend.delete(key)
    assert place in {each for each, _ in told(inspect(whole))}


def test_an_old_alias_record_put_back_is_found(whole: Any) -> None:
    old = whole.backend.get(KEYS.alias("digits", "prod")).value
    whole.promote(4)
    now = whole.backend.get(KEYS.alias("digits", "prod"))
    whole.backend.update(now.key, old, now.modified)
    assert [place for place, _ in told(inspect(whole))] == ["digits@prod"]


def test_too_few_signatures_and_approvals_are_found(
    whole: Any, desk_on: Any, storage: LocalStorage
) -> None:
    strict = desk_on(whole.backend, storage, signatures_min=1, approvals_min=1)
    places = [place for place, _ in told(inspect(strict))]
    assert places == ["digits@prod", "digits:2", "digits:3", "digits:4"]


@pytest.fixture
def mirrored(backend: Backend, tmp_path: Path, desk_on: Any) -> Any:
    """Return a registry with two versions whose files are in `a` and in `b`."""
    copies = [LocalStorage(tmp_path / name) for name in "ab"]
    desk = desk_on(backend, MirroredStorage(copies))
    desk.register(1, 2)
    return desk


def test_a_copy_that_lacks_or_damaged_files_is_named_and_filled_from_the_other(
    mirrored: Any, tmp_path: Path
) -> None:
    assert inspect(mirrored).files == 10
    whole = {p.relative_to(tmp_path / "a"): p.read_bytes() for p in _files(tmp_path / "a")}
    for name, version, content in (("head", 1, None), ("head", 2, b"flipped!")):
        path = path_of(mirrored, tmp_path / "ab"[version - 1], name, version)
        path.unlink() if content is None else path.write_bytes(content)
    manifest = next((tmp_path / "b/default/manifests").iterdir())
    manifest.write_bytes(b"{}")

    inspector = mirrored.registry.inspector(reads_every_byte=True)
    inspection = inspector.inspect()
    assert sorted(problem.copy for problem in inspection.problems) == [
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        str(tmp_path / "b"),
    ]
    repaired = inspector.repaired(inspection)
    assert repaired.is_sound
    assert not inspection.is_sound
    assert inspector.inspect().problems == ()
    for top in (tmp_path / "a", tmp_path / "b"):
        assert {p.relative_to(top): p.read_bytes() for p in _files(top)} == whole


def test_what_is_damaged_everywhere_stays_a_problem(mirrored: Any, tmp_path: Path) -> None:
    for top in "ab":
        path_of(mirrored, tmp_path / top, "head", 1).write_bytes(b"flipped!")
    inspector = mirrored.registry.inspector(reads_every_byte=True)
    repaired = inspector.repaired(inspector.inspect())
    assert [problem.is_repaired for problem in repaired.problems] == [False, False]


def test_a_damaged_copy_is_read_around(mirrored: Any, tmp_path: Path) -> None:
    path_of(mirrored, tmp_path / "a", "head", 1).write_bytes(b"flipped!")
    loaded = mirrored.registry.load(Reference.parse("digits:1"))
    assert loaded.tensors["head"] == path_of(mirrored, tmp_path / "b", "head", 1).read_bytes()


def test_an_inspection_beside_writers_finds_no_problem(
    desk: Any, tensors: Callable[[int], Any]
) -> None:
    desk.register(1)
    has_ended = threading.Event()

    def write() -> None:
        keep = desk.registry.housekeeping("ann")
        for number in range(2, 15):
            desk.registry.register("digits", tensors(number), actor="ann")
            desk.promote(number)
            keep.collect(Retention(keep_last=2, history=1))
        has_ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    while not has_ended.is_set():
        assert inspect(desk).problems == ()
        looks += 1
    writer.join()
    assert looks > 1
    assert dataclasses.replace(inspect(desk), versions=0).is_sound


def _files(top: Path) -> list[Path]:
    return [path for path in top.rglob("*") if path.is_file()]
