"""Gradients are kept as they came, under their roots, for so many rounds."""

from pathlib import Path

import numpy as np
import pytest
from training.signed import header

from pliska.coordinator.errors import DamagedStateError, NotKeptError
from pliska.coordinator.records.payloads import PayloadStore, decoded
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire import Float32Codec, SealedPayload, seal
from pliska.coordinator.wire.codec import CodecSpec

VECTOR = np.arange(5, dtype=np.float32)
SEALED = seal(Float32Codec(), VECTOR)


@pytest.fixture
def store(tmp_path: Path) -> PayloadStore:
    return PayloadStore(LocalStorage(tmp_path), "toy")


def keep(store: PayloadStore, round_number: int, sealed: SealedPayload = SEALED) -> None:
    store.write(round_number, sealed.root, sealed.payload)


def test_kept_payload_decodes_to_the_gradient_that_was_sent(store: PayloadStore) -> None:
    keep(store, 5)
    payload = store.read(5, SEALED.root)
    assert np.array_equal(decoded(payload, header("w1"), 5), VECTOR)


def test_payload_that_does_not_fit_its_header_is_refused(store: PayloadStore) -> None:
    keep(store, 5)
    payload = store.read(5, SEALED.root)
    with pytest.raises(DamagedStateError):
        decoded(payload, header("w1"), 6)
    with pytest.raises(DamagedStateError):
        decoded(payload, header("w1", codec=CodecSpec("unheard-of")), 5)


def test_payload_that_is_not_kept_is_named_with_the_setting(store: PayloadStore) -> None:
    with pytest.raises(NotKeptError, match=r"audit\.keep_rounds"):
        store.read(5, SEALED.root)


def test_every_altered_byte_is_found(store: PayloadStore, tmp_path: Path) -> None:
    keep(store, 5)
    (name,) = store.names()
    store.check(name)
    content = bytearray((tmp_path / name).read_bytes())
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= 1
        (tmp_path / name).write_bytes(altered)
        with pytest.raises(DamagedStateError, match="does not have this root"):
            store.check(name)
    with pytest.raises(DamagedStateError, match="no payload has such a name"):
        store.check(name + ".txt")


def test_rounds_before_the_oldest_kept_go(store: PayloadStore) -> None:
    for round_number in (8, 9, 10, 11):
        keep(store, round_number)
    removed = store.prune(10)
    assert removed == [store.name(8, SEALED.root), store.name(9, SEALED.root)]
    assert store.names() == [store.name(10, SEALED.root), store.name(11, SEALED.root)]
    assert store.prune(10) == []
