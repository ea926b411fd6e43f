import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from pliska.coordinator.errors import CheckpointError, StorageFullError
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.records.checkpoint_writer import CheckpointWriter
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.training.training_state import TrainingState
from pliska.locks import GrantLostError

WAIT_S = 20.0


def checkpoint_of(version: int, state: TrainingState) -> Checkpoint:
    return Checkpoint(version, bytes([version]) * 32, state.digest())


def state_of(value: float) -> TrainingState:
    return TrainingState({"a": torch.full((4,), value)}, {"step": 1})


class GatedStorage(LocalStorage):
    """A disk that writes nothing until it is told to, and fails when told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.gate = threading.Event()
        self.is_full = False

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        assert self.gate.wait(WAIT_S)
        if self.is_full:
            raise StorageFullError(f"cannot write {name}: No space left on device")
        super().write(name, chunks)


def writer_to(store: CheckpointStore) -> CheckpointWriter:
    """Make a writer that anybody may use, and that removes nothing."""
    return CheckpointWriter(store, lambda: None, lambda _: None)


@pytest.fixture
def storage(tmp_path: Path) -> GatedStorage:
    return GatedStorage(tmp_path)


def test_the_state_may_change_while_it_is_written(storage: GatedStorage) -> None:
    store = CheckpointStore(storage, "digits")
    live = state_of(1.0)
    with writer_to(store) as writer:
        future = writer.save(checkpoint_of(1, live), live)
        assert not future.done(), "the caller did not wait for the disk"
        live.tensors["a"].fill_(9.0)
        storage.gate.set()
        assert future.result(WAIT_S).version == 1

    _, state = store.read(store.places()[0])
    assert torch.equal(state.tensors["a"], torch.full((4,), 1.0))


def test_the_next_save_waits_for_the_one_being_written(storage: GatedStorage) -> None:
    store = CheckpointStore(storage, "digits")
    with writer_to(store) as writer:
        writer.save(checkpoint_of(1, state_of(1.0)), state_of(1.0))
        second = threading.Thread(
            target=lambda: writer.save(checkpoint_of(2, state_of(2.0)), state_of(2.0))
        )
        second.start()
        assert second.is_alive()
        storage.gate.set()
        second.join(WAIT_S)
        writer.flush()

    values = [store.read(place)[1].tensors["a"][0].item() for place in store.places()]
    assert values == [2.0, 1.0]


def test_a_failed_write_surfaces_and_the_writer_goes_on(storage: GatedStorage) -> None:
    store = CheckpointStore(storage, "digits")
    storage.gate.set()
    storage.is_full = True
    with writer_to(store) as writer:
        future = writer.save(checkpoint_of(1, state_of(1.0)), state_of(1.0))
        with pytest.raises(CheckpointError, match=r"version 1 failed: .*No space left"):
            writer.save(checkpoint_of(2, state_of(2.0)), state_of(2.0))
        assert isinstance(future.exception(WAIT_S), CheckpointError)
        storage.is_full = False
        writer.save(checkpoint_of(3, state_of(3.0)), state_of(3.0))
        writer.flush()

    assert [store.read(place)[0].version for place in store.places()] == [3]


def test_closing_raises_what_the_last_write_met(storage: GatedStorage) -> None:
    storage.gate.set()
    storage.is_full = True
    writer = writer_to(CheckpointStore(storage, "digits"))
    writer.save(checkpoint_of(1, state_of(1.0)), state_of(1.0))

    with pytest.raises(CheckpointError):
        writer.close()


def test_what_a_checkpoint_makes_superfluous_goes_once_it_is_complete(
    storage: GatedStorage,
) -> None:
    store = CheckpointStore(storage, "digits")
    storage.gate.set()
    complete: list[list[int]] = []

    def after(checkpoint: Checkpoint) -> None:
        complete.append([store.version_of(place) for place in store.places()])
        assert complete[-1][0] == checkpoint.version

    with CheckpointWriter(store, lambda: None, after) as writer:
        for version in (1, 2):
            writer.save(checkpoint_of(version, state_of(version)), state_of(version))
    assert complete == [[1], [2, 1]]


def test_a_leader_that_was_replaced_completes_no_checkpoint(storage: GatedStorage) -> None:
    store = CheckpointStore(storage, "digits")
    leads = True

    def permit() -> None:
        if not leads:
            raise GrantLostError("another coordinator leads")

    writer = CheckpointWriter(store, permit, lambda _: None)
    writer.save(checkpoint_of(1, state_of(1.0)), state_of(1.0))
    leads = False  # the first file waits at the gate
    storage.gate.set()
    with pytest.raises(CheckpointError, match="another coordinator leads"):
        writer.close()
    assert store.places() == []


def test_a_state_of_another_shape_is_staged_anew(storage: GatedStorage) -> None:
    store = CheckpointStore(storage, "digits")
    storage.gate.set()
    grown = TrainingState({"a": torch.ones(4), "momentum": torch.ones(9)}, {})
    with writer_to(store) as writer:
        writer.save(checkpoint_of(1, state_of(1.0)), state_of(1.0))
        writer.save(checkpoint_of(2, grown), grown)

    assert store.read(store.places()[0])[1].digest() == grown.digest()


def test_the_last_checkpoint_is_written_even_when_nobody_closes(tmp_path: Path) -> None:
    program = (
        "import sys, torch\n"
        "from pathlib import Path\n"
        "from pliska.coordinator.records.checkpoint import Checkpoint\n"
        "from pliska.coordinator.records.checkpoint_store import CheckpointStore\n"
        "from pliska.coordinator.records.checkpoint_writer import CheckpointWriter\n"
        "from pliska.coordinator.storage.storage import LocalStorage\n"
        "from pliska.coordinator.training.training_state import TrainingState\n"
        "state = TrainingState({'a': torch.ones(100_000)}, {})\n"
        "store = CheckpointStore(LocalStorage(Path(sys.argv[1])), 'digits')\n"
        "writer = CheckpointWriter(store, lambda: None, lambda _: None)\n"
        "writer.save(Checkpoint(1, bytes(32), state.digest()), state)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)

    store = CheckpointStore(LocalStorage(tmp_path), "digits")
    assert store.read(store.places()[0])[0].version == 1


def test_saving_again_and_again_takes_no_further_memory(storage: GatedStorage) -> None:
    storage.gate.set()
    with writer_to(CheckpointStore(storage, "digits")) as writer:
        places = set()
        for version in range(1, 6):
            state = state_of(float(version))
            writer.save(checkpoint_of(version, state), state)
            places.add(tuple(each.data_ptr() for each in writer._staged.values()))
        assert len(places) == 1
        assert len(writer._staged) == 1
    assert not writer._staged
