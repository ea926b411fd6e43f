"""The IDX format that the MNIST files come in: a header, then one array of bytes.

A strict reader: it takes files of unsigned bytes with the number of axes that
the caller asks for, plain or gzipped, and refuses everything else. It reads
only as far as the header promises, so that a compressed bomb costs no memory.
It is not a general reader of IDX (other element types, writing). Called by
`digits`.

Source: the format is described on the MNIST page by LeCun, Cortes and Burges.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pliska.trainer.demo.errors import DataFileError, DataFormatError

ELEMENTS_MAX = 256 * 1024 * 1024
"""One byte each. The largest array of MNIST has 47 million."""

UNSIGNED_BYTE = 0x08
"""The only element type that is read here."""


class _Readable(Protocol):
    """A plain or a gzipped file."""

    def read(self, size: int, /) -> bytes: ...


def find_idx(directory: Path, stem: str) -> Path:
    """Return the file `stem` or `stem`.gz in a directory.

    Raises:
        DataFileError: There is neither; the message names both.
    """
    for name in (stem, f"{stem}.gz"):
        if (directory / name).is_file():
            return directory / name
    raise DataFileError(f"{directory} has neither {stem} nor {stem}.gz")


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Read one array of unsigned bytes.

    Args:
        path: A plain IDX file, or a gzipped one whose name ends in `.gz`.
        axes: How many axes the array must have (1 for labels, 3 for images).

    Returns:
        uint8, of the shape in the header, at most `ELEMENTS_MAX` elements.

    Raises:
        DataFileError: The file cannot be opened.
        DataFormatError: Wrong magic number, element type or number of axes, too
            many elements, fewer or more bytes than the header says, or damaged gzip.
    """
    try:
        with path.open("rb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                    return _parse(unpacked, path, axes)
            return _parse(raw, path, axes)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataFormatError(f"{path} is not a whole gzip file: {error}") from error
    except OSError as error:
        raise DataFileError(f"{path} cannot be read: {error.strerror or error}") from error


def _parse(stream: _Readable, path: Path, axes: int) -> NDArray[np.uint8]:
    magic = _exactly(stream, 4, path, "the magic number")
    if magic != bytes((0, 0, UNSIGNED_BYTE, axes)):
        raise DataFormatError(
            f"{path} begins with {magic.hex()}; an IDX file of unsigned bytes with "
            f"{axes} axes begins with 0000{UNSIGNED_BYTE:02x}{axes:02x}"
        )
    shape = struct.unpack(f">{axes}I", _exactly(stream, 4 * axes, path, "the shape"))
    elements = math.prod(shape)
    if not 0 < elements <= ELEMENTS_MAX:
        raise DataFormatError(
            f"{path} says its shape is {shape}; 1 to {ELEMENTS_MAX} elements are read here"
        )
    content = _exactly(stream, elements, path, f"an array of shape {shape}")
    if stream.read(1):
        raise DataFormatError(
            f"{path} goes on after the {elements} bytes that its shape {shape} needs"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _exactly(stream: _Readable, count: int, path: Path, what: str) -> bytearray:
    """Read `count` bytes in pieces: memory grows with what is there, not with what is claimed."""
    content = bytearray()
    while len(content) < count:
        piece = stream.read(min(count - len(content), 1 << 20))
        if not piece:
            raise DataFormatError(
                f"{path} ends after {len(content)} of the {count} bytes of {what}"
            )
        content += piece
    return content
