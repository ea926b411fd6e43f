from collections.abc import Iterator
from pathlib import Path

import pytest

from pliska.coordinator.registry import IntegrityError, Lineage, Manifest, Tensor, TensorEntry
from pliska.coordinator.registry.blobs import Blobs, hash_tensor
from pliska.coordinator.registry.tensor import TensorType
from pliska.coordinator.storage.storage import LocalStorage

TENSOR = Tensor.of_bytes("U8", (5,), b"hello")
ENTRY = TensorEntry("a", TENSOR.type, hash_tensor(TENSOR))
MANIFEST = Manifest("default", "digits", (ENTRY,), {}, Lineage())


@pytest.fixture
def blobs(storage: LocalStorage) -> Blobs:
    return Blobs(storage, "default")


def stored_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_tensor_is_stored_once_however_often_it_is_put(blobs: Blobs, tmp_path: Path) -> None:
    blobs.put_tensor(TENSOR, ENTRY.digest)
    (path,) = stored_files(tmp_path)
    written = path.stat().st_mtime_ns, path.stat().st_ino
    blobs.put_tensor(TENSOR, ENTRY.digest)
    assert [path] == stored_files(tmp_path)
    assert written == (path.stat().st_mtime_ns, path.stat().st_ino)
    assert blobs.read_tensor(ENTRY) == b"hello"


@pytest.mark.parametrize("damage", [b"hellO", b"hell", b"hello!", b""])
def test_a_damaged_blob_is_refused_when_read_and_replaced_when_put_again(
    blobs: Blobs, tmp_path: Path, damage: bytes
) -> None:
    blobs.put_tensor(TENSOR, ENTRY.digest)
    (path,) = stored_files(tmp_path)
    path.write_bytes(damage)
    with pytest.raises(IntegrityError):
        blobs.read_tensor(ENTRY)
    blobs.put_tensor(TENSOR, ENTRY.digest)
    assert blobs.read_tensor(ENTRY) == b"hello"


def test_a_missing_blob_is_an_integrity_error(blobs: Blobs) -> None:
    with pytest.raises(IntegrityError, match="missing"):
        blobs.read_tensor(ENTRY)


def test_a_tensor_that_changes_while_it_is_stored_leaves_no_blob(
    blobs: Blobs, tmp_path: Path
) -> None:
    readings = [b"hello", b"hullo"]

    def chunks() -> Iterator[bytes]:
        yield readings.pop(0)

    tensor = Tensor(TensorType("U8", (5,)), chunks)
    digest = hash_tensor(tensor)
    with pytest.raises(IntegrityError, match="changed"):
        blobs.put_tensor(tensor, digest)
    assert stored_files(tmp_path) == []


def test_a_damaged_manifest_is_refused(blobs: Blobs, tmp_path: Path) -> None:
    digest = blobs.put_manifest(MANIFEST)
    assert blobs.read_manifest(digest) == MANIFEST
    (path,) = stored_files(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"digits", b"digitz"))
    with pytest.raises(IntegrityError, match="another digest"):
        blobs.read_manifest(digest)
    path.unlink()
    with pytest.raises(IntegrityError, match="missing"):
        blobs.read_manifest(digest)


def test_namespaces_do_not_share_files(blobs: Blobs, storage: LocalStorage) -> None:
    blobs.put_tensor(TENSOR, ENTRY.digest)
    with pytest.raises(IntegrityError):
        Blobs(storage, "other").read_tensor(ENTRY)
