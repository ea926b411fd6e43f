from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from pliska.coordinator.errors import DamagedStateError, ModelStateError
from pliska.coordinator.training.state_manifest import (
    STATE_BYTES_MAX,
    StateManifest,
    StateTensor,
    in_order,
    leaves_of,
)
from pliska.coordinator.training.training_state import TrainingState
from pliska.coordinator.wire import CHUNK_BYTES, hash_tree

TENSORS = {
    "b/step": torch.tensor(7, dtype=torch.int64),
    "weights": torch.arange(700_000, dtype=torch.float32).reshape(700, 1000),
    "empty": torch.empty((0, 3), dtype=torch.float32),
    "a/flags": torch.tensor([True, False, True]),
    "half": torch.tensor([1.5, -2.5], dtype=torch.bfloat16),
}
STATE = TrainingState(TENSORS, {"step": 7, "lr": 0.1})


def payload() -> bytearray:
    return bytearray(b"".join(STATE.views()))


def test_the_leaves_of_buffers_are_those_of_their_concatenation() -> None:
    whole = bytes(range(256)) * 12_345
    cuts = [0, 5, 5, CHUNK_BYTES, 2 * CHUNK_BYTES + 9, len(whole)]
    pieces = [memoryview(whole)[a:b] for a, b in pairwise(cuts)]
    assert list(leaves_of(pieces)) == hash_tree.leaves(memoryview(whole))
    assert list(leaves_of([])) == []


def test_any_chunk_of_a_state_is_checked_against_its_digest() -> None:
    manifest, leaves = STATE.sealed()
    read = StateManifest.from_bytes(manifest.to_bytes(), STATE.digest())
    verifier = hash_tree.ChunkVerifier(leaves, read.root, read.payload_len)
    for index, chunk in enumerate(hash_tree.chunks(memoryview(payload()))):
        verifier.check(index, chunk)


def test_tensors_come_back_from_the_bytes() -> None:
    manifest, _ = STATE.sealed()
    tensors = manifest.tensors_of(memoryview(payload()))
    assert list(tensors) == in_order(TENSORS)
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    again = TrainingState(tensors, manifest.settings_table())
    assert again.digest() == STATE.digest()


def test_a_manifest_of_another_state_is_refused() -> None:
    manifest, _ = STATE.sealed()
    with pytest.raises(DamagedStateError, match="another state"):
        StateManifest.from_bytes(replace(manifest, root=bytes(32)).to_bytes(), STATE.digest())
    with pytest.raises(DamagedStateError, match="not the manifest"):
        StateManifest.from_bytes(manifest.to_bytes()[:-1], STATE.digest())


def test_tensors_that_no_state_has_are_refused() -> None:
    one = StateTensor("a", "float32", (2,))
    for tensors in (
        (StateTensor("a", "complex64", (2,)),),
        (one, one),
        (StateTensor("b", "float32", (1,)), one),
        (one, StateTensor("b", "int64", (1,))),
    ):
        with pytest.raises(ModelStateError):
            StateManifest("{}", tensors, bytes(32))


def test_a_state_has_at_most_so_many_bytes() -> None:
    at_most = StateTensor("a", "uint8", (STATE_BYTES_MAX,))
    assert StateManifest("{}", (at_most,), bytes(32)).payload_len == STATE_BYTES_MAX
    with pytest.raises(ModelStateError, match="at most"):
        StateManifest("{}", (replace(at_most, shape=(STATE_BYTES_MAX + 1,)),), bytes(32))


@pytest.mark.parametrize("settings", ["[]", "{", "[" * 100_000])
def test_settings_that_are_no_table_are_refused(settings: str) -> None:
    with pytest.raises(DamagedStateError):
        StateManifest(settings, (), bytes(32)).settings_table()
