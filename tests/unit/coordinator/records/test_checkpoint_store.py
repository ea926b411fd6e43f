import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import torch

from pliska.coordinator.errors import DamagedStateError, StorageError
from pliska.coordinator.records import checkpoint_store as store_module
from pliska.coordinator.records.checkpoint import FILES_MAX, Checkpoint
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.training_state import TrainingState


def state_at(version: int) -> TrainingState:
    return TrainingState(
        {
            "parameters/weight": torch.full((3, 4), float(version)),
            "optimizer/momentum": torch.arange(5.0) * version,
            "optimizer/step": torch.tensor(float(version)),
        },
        {"step": version, "lr": 0.1},
    )


def checkpoint_at(version: int, state: TrainingState | None = None) -> Checkpoint:
    digest = (state or state_at(version)).digest()
    return Checkpoint(version, bytes([version]) * 32, digest)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def store(directory: Path) -> CheckpointStore:
    return CheckpointStore(LocalStorage(directory), "digits")


def test_a_state_comes_back_bit_for_bit(store: CheckpointStore) -> None:
    store.write(checkpoint_at(7), state_at(7))

    (place,) = store.places()
    found, state = store.read(place)
    assert found == checkpoint_at(7)
    assert state.digest() == state_at(7).digest()
    assert state.settings == {"step": 7, "lr": 0.1}


def test_a_large_state_is_split_into_files(
    store: CheckpointStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "FILE_BYTES_TARGET", 30)
    store.write(checkpoint_at(1), state_at(1))

    assert len(list(directory.rglob("*.safetensors"))) == 2
    assert store.read(store.places()[0])[1].digest() == state_at(1).digest()


def test_places_are_newest_first(store: CheckpointStore) -> None:
    for version in (2, 10, 1):
        store.write(checkpoint_at(version), state_at(version))

    assert [store.read(place)[0].version for place in store.places()] == [10, 2, 1]


def test_a_folder_without_a_manifest_does_not_count(
    store: CheckpointStore, directory: Path
) -> None:
    store.write(checkpoint_at(1), state_at(1))
    (directory / store.places()[0] / "manifest.json").unlink()

    assert store.places() == []


def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(
    store: CheckpointStore, directory: Path
) -> None:
    store.write(checkpoint_at(1), state_at(1))
    (place,) = store.places()
    for path in sorted((directory / place).iterdir()):
        content = path.read_bytes()
        for position in range(0, len(content), 3):
            damaged = bytearray(content)
            damaged[position] ^= 1 << (position % 8)
            path.write_bytes(damaged)
            try:
                found, state = store.read(place)
            except DamagedStateError:
                continue
            assert (found.version, found.state_digest, state.digest()) == (
                1,
                state_at(1).digest(),
                state_at(1).digest(),
            ), f"{path.name}, byte {position}"
        path.write_bytes(content)


def test_a_truncated_file_is_named_with_both_lengths(
    store: CheckpointStore, directory: Path
) -> None:
    store.write(checkpoint_at(1), state_at(1))
    (place,) = store.places()
    path = directory / place / "state-00000.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1])

    with pytest.raises(DamagedStateError, match=f"has {len(content) - 1} bytes instead of"):
        store.read(place)
    path.unlink()
    with pytest.raises(DamagedStateError, match="is missing"):
        store.read(place)


def test_a_checkpoint_of_another_job_is_refused(store: CheckpointStore, directory: Path) -> None:
    store.write(checkpoint_at(1), state_at(1))
    (place,) = store.places()
    path = directory / place / "manifest.json"
    path.write_text(path.read_text().replace('"digits"', '"other"'))

    with pytest.raises(DamagedStateError, match="belongs elsewhere"):
        store.read(place)


def test_a_checkpoint_under_another_version_is_refused(
    store: CheckpointStore, directory: Path
) -> None:
    store.write(checkpoint_at(1), state_at(1))
    (place,) = store.places()
    moved = place.replace("000000000001-", "000000000009-")
    (directory / place).rename(directory / moved)

    with pytest.raises(DamagedStateError, match="belongs elsewhere"):
        store.read(moved)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "other"}, "its format is 'other'"),
        ({"schema_version": 1}, "schema version 1 is not ours"),
        ({"state_digest": "00"}, "a digest has 1 bytes"),
        ({"files": [{"name": "../../secret", "bytes": 1}]}, "it names a file"),
        (
            {"files": [{"name": "state-00000.safetensors", "bytes": 1}] * (FILES_MAX + 1)},
            f"more than {FILES_MAX}",
        ),
        ({"settings": []}, "settings are not a table"),
    ],
)
def test_a_manifest_that_is_not_ours_says_why(
    store: CheckpointStore, directory: Path, change: dict[str, object], reason: str
) -> None:
    store.write(checkpoint_at(1), state_at(1))
    (place,) = store.places()
    path = directory / place / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(DamagedStateError, match=reason):
        store.read(place)


def test_a_digest_that_is_not_the_states_is_found_on_reading(store: CheckpointStore) -> None:
    store.write(Checkpoint(1, b"\1" * 32, b"\2" * 32), state_at(1))

    with pytest.raises(DamagedStateError, match="does not have its state digest"):
        store.read(store.places()[0])


def test_folders_say_what_is_whole_and_go_with_all_that_is_in_them(
    store: CheckpointStore, directory: Path
) -> None:
    for version in range(1, 5):
        store.write(checkpoint_at(version), state_at(version))
    places = store.places()
    assert [store.version_of(place) for place in places] == [4, 3, 2, 1]
    (directory / places[0] / "manifest.json").unlink()
    (directory / places[1] / "state-00000.safetensors").unlink()
    (directory / places[2] / "manifest.json").write_text("{}")

    folders = store.folders()

    assert [(each.version, each.is_whole) for each in folders] == [
        (4, False),
        (3, False),
        (2, False),
        (1, True),
    ]
    for folder in folders:
        store.remove(folder)
        assert not (directory / folder.place).exists()


def test_a_folder_goes_with_a_manifest_that_came_since_it_was_looked_at(
    store: CheckpointStore, directory: Path
) -> None:
    store.write(checkpoint_at(1), state_at(1))
    manifest = directory / store.places()[0] / "manifest.json"
    text = manifest.read_text()
    manifest.unlink()
    (folder,) = store.folders()
    manifest.write_text(text)

    store.remove(folder)

    assert store.folders() == []


def test_a_checkpoint_that_others_removed_amid_its_writing_leaves_nothing(
    directory: Path,
) -> None:
    class Removed(LocalStorage):
        def write(self, name: str, chunks: object) -> None:
            if name.endswith("manifest.json"):
                for part in self.names(name.rpartition("/")[0]):
                    self.delete(part)
            super().write(name, chunks)  # type: ignore[arg-type]

    store = CheckpointStore(Removed(directory), "digits")
    with pytest.raises(StorageError, match="was removed while it was written"):
        store.write(checkpoint_at(1), state_at(1))
    assert store.folders() == []


def test_any_part_of_a_stored_state_is_what_its_manifest_says(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "FILE_BYTES_TARGET", 30)
    store.write(checkpoint_at(3), state_at(3))
    stored = store.stored(store.places()[0])
    whole = b"".join(state_at(3).views())

    assert stored.manifest.digest == state_at(3).digest()
    assert (stored.manifest, stored.leaves) == state_at(3).sealed()
    for offset in range(len(whole) + 1):
        for length in (0, 1, 7, len(whole) - offset):
            if offset + length <= len(whole):
                assert stored.read_range(offset, length) == whole[offset : offset + length]
    with pytest.raises(StorageError, match="ends 1 bytes before"):
        stored.read_range(1, len(whole))


def test_a_stored_state_that_is_not_what_the_record_names_is_refused(
    store: CheckpointStore, directory: Path
) -> None:
    store.write(checkpoint_at(3), state_at(3))
    (place,) = store.places()
    manifest = directory / place / "state.manifest"
    manifest.write_bytes(manifest.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedStateError, match="another state"):
        store.stored(place)
    store.write(checkpoint_at(3), state_at(3))
    file = directory / place / "state-00000.safetensors"
    file.write_bytes(file.read_bytes() + bytes(4))
    index = json.loads((directory / place / "manifest.json").read_text())
    index["files"][0]["bytes"] += 4
    (directory / place / "manifest.json").write_text(json.dumps(index))
    with pytest.raises(DamagedStateError, match="not as long as its state"):
        store.stored(place)


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_writer_that_loses_its_permission_leaves_no_checkpoint(
    store: CheckpointStore, granted: int
) -> None:
    asked = count()

    def permit() -> None:
        if next(asked) >= granted:
            raise PermissionError

    with pytest.raises(PermissionError):
        store.write(checkpoint_at(1), state_at(1), permit)
    assert store.places() == []


def test_a_kill_at_any_step_leaves_a_complete_checkpoint(
    crash_at_every_step: Callable[[str], list[Path]],
) -> None:
    runs = crash_at_every_step(
        "import torch\n"
        "from pliska.coordinator.records import checkpoint_store as module\n"
        "from pliska.coordinator.records.checkpoint import Checkpoint\n"
        "from pliska.coordinator.records.checkpoint_store import CheckpointStore\n"
        "from pliska.coordinator.storage.storage import LocalStorage\n"
        "from pliska.coordinator.training.training_state import TrainingState\n"
        "module.FILE_BYTES_TARGET = 30\n"
        "def write(directory, version):\n"
        "    state = TrainingState({\n"
        "        'a': torch.full((6,), float(version)), 'b': torch.arange(5.0) * version,\n"
        "    }, {'step': version})\n"
        "    store = CheckpointStore(LocalStorage(directory), 'digits')\n"
        "    store.write(Checkpoint(version, bytes([version]) * 32, state.digest()), state)\n"
        "    for folder in store.folders()[1:]:\n"
        "        store.remove(folder)\n"
        "def prepare(directory):\n"
        "    write(directory, 1)\n"
        "def act(directory):\n"
        "    write(directory, 2)\n"
    )

    assert len(runs) > 20
    newest = []
    for run in runs:
        store = CheckpointStore(LocalStorage(run), "digits")
        checkpoint, state = store.read(store.places()[0])
        newest.append(checkpoint.version)
        assert torch.equal(state.tensors["a"], torch.full((6,), float(checkpoint.version)))
    assert set(newest) == {1, 2}
    assert newest == sorted(newest), "once complete, the new one stays"


def test_a_storage_error_leaves_the_checkpoint_incomplete(directory: Path) -> None:
    class FullAtTheManifest(LocalStorage):
        def write(self, name: str, chunks: object) -> None:
            if name.endswith("manifest.json"):
                raise StorageError("no space")
            super().write(name, chunks)  # type: ignore[arg-type]

    store = CheckpointStore(FullAtTheManifest(directory), "digits")
    with pytest.raises(StorageError):
        store.write(checkpoint_at(1), state_at(1))

    assert store.places() == []
