"""The IDX reader takes what MNIST's files are, and nothing else."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from pliska.trainer.demo import idx
from pliska.trainer.demo.errors import DataFileError, DataFormatError


def encode(array: np.ndarray, element_type: int = 0x08) -> bytes:
    header = bytes((0, 0, element_type, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()


IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("packed", [False, True])
def test_array_comes_back_as_it_was_written(tmp_path: Path, packed: bool) -> None:
    content = encode(IMAGES)
    path = tmp_path / ("images.gz" if packed else "images")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert np.array_equal(idx.read_idx(path, axes=3), IMAGES)


def test_plain_file_is_found_before_the_gzipped_one(tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(b"")
    assert idx.find_idx(tmp_path, "images") == tmp_path / "images.gz"
    (tmp_path / "images").write_bytes(b"")
    assert idx.find_idx(tmp_path, "images") == tmp_path / "images"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"neither images nor images\.gz"):
        idx.find_idx(tmp_path, "images")
    with pytest.raises(DataFileError, match="No such file"):
        idx.read_idx(tmp_path / "images", axes=3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends after 0 of the 4 bytes of the magic number"),
        (encode(IMAGES, element_type=0x0D), "begins with 00000d03"),
        (encode(IMAGES.reshape(6, 4)), "begins with 00000802"),
        (encode(IMAGES)[:10], "ends after 6 of the 12 bytes of the shape"),
        (encode(IMAGES)[:-1], "ends after 23 of the 24 bytes"),
        (encode(IMAGES) + b"\0", "goes on after the 24 bytes"),
        (b"\0\0\x08\x03" + struct.pack(">3I", 0, 28, 28), r"shape is \(0, 28, 28\)"),
        (b"\0\0\x08\x03" + struct.pack(">3I", *(2**32 - 1,) * 3), "says its shape is"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_not_that_array_is_refused(
    tmp_path: Path, content: bytes, message: str, packed: bool
) -> None:
    path = tmp_path / ("images.gz" if packed else "images")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataFormatError, match=message):
        idx.read_idx(path, axes=3)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "not gzip"])
def test_damaged_gzip_is_refused(tmp_path: Path, damage: str) -> None:
    content = bytearray(gzip.compress(encode(IMAGES)))
    if damage == "truncated":
        content = content[:-4]
    elif damage == "flipped":
        content[-6] ^= 0xFF
    else:
        content = bytearray(encode(IMAGES))
    (tmp_path / "images.gz").write_bytes(content)
    with pytest.raises(DataFormatError, match="not a whole gzip file"):
        idx.read_idx(tmp_path / "images.gz", axes=3)


def test_size_limit_holds_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idx, "ELEMENTS_MAX", 24)
    (tmp_path / "images").write_bytes(encode(IMAGES))
    assert idx.read_idx(tmp_path / "images", axes=3).size == 24
    (tmp_path / "labels").write_bytes(encode(np.zeros(25, dtype=np.uint8)))
    with pytest.raises(DataFormatError, match="1 to 24 elements"):
        idx.read_idx(tmp_path / "labels", axes=1)


def test_bomb_is_read_only_one_byte_past_its_header(tmp_path: Path) -> None:
    bomb = gzip.compress(encode(np.zeros(10, dtype=np.uint8)) + bytes(64 * 1024 * 1024))
    (tmp_path / "labels.gz").write_bytes(bomb)
    with pytest.raises(DataFormatError, match="goes on after the 10 bytes"):
        idx.read_idx(tmp_path / "labels.gz", axes=1)


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_are_refused(tmp_path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for length in generator.integers(0, 200, size=30):
        (tmp_path / "noise").write_bytes(generator.bytes(int(length)))
        with pytest.raises(DataFormatError):
            idx.read_idx(tmp_path / "noise", axes=3)


@pytest.mark.mnist
@pytest.mark.skipif("PLISKA_MNIST" not in os.environ, reason="PLISKA_MNIST names no directory")
def test_mnist_itself_can_be_read() -> None:
    directory = Path(os.environ["PLISKA_MNIST"])
    labels = idx.read_idx(idx.find_idx(directory, "t10k-labels-idx1-ubyte"), axes=1)
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
