"""The manifest of a checkpoint as text; what a store does with one is `test_checkpoint_store`."""

import pytest

from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.checkpoint import FILES_MAX, Checkpoint, CheckpointManifest

CHECKPOINT = Checkpoint(version=7, record_digest=bytes(range(32)), state_digest=b"s" * 32)


def manifest(files: int) -> CheckpointManifest:
    names = tuple((f"state-{number:05d}.safetensors", number) for number in range(files))
    return CheckpointManifest("digits", CHECKPOINT, {"step": 7, "lr": 0.1}, names)


@pytest.mark.parametrize("files", [1, FILES_MAX])
def test_a_manifest_comes_back_from_its_text(files: int) -> None:
    assert CheckpointManifest.parse(manifest(files).to_bytes(), "here") == manifest(files)


def test_a_manifest_of_more_files_than_there_may_be_is_refused() -> None:
    with pytest.raises(DamagedStateError, match=f"here: .* more than {FILES_MAX}"):
        CheckpointManifest.parse(manifest(FILES_MAX + 1).to_bytes(), "here")
