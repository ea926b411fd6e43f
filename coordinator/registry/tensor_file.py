"""Reading and writing safetensors files, strictly.

The registry reads and writes this format itself, without a numeric library, for
three reasons: every dtype (bfloat16, float8, ...) goes through as
the bytes it is, with no cast and no dependence on numpy; a hostile header is
refused by named limits before anything is allocated from it; and the `safetensors`
package cannot be relied on for bytes that must be exact: version 0.8.0 silently
writes garbage for numpy arrays that are not C-contiguous, and the same tensors
give different files on each save (issues 825 and 584 of huggingface/safetensors).
Files written here are the same bytes for the same tensors.

Nothing here unpickles, and there is no fallback to anything that does.

Format: 8 bytes little-endian header length, a JSON header that maps each name to
dtype, shape and byte range, then the tensors' C-order little-endian bytes without
gaps or overlaps (the format's README). A header may be padded with spaces.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pliska.coordinator.registry.errors import TensorFormatError
from pliska.coordinator.registry.input_file import open_input
from pliska.coordinator.registry.new_file import new_file
from pliska.coordinator.registry.tensor import (
    DTYPE_BITS,
    TENSOR_NAME_CHARACTERS_MAX,
    Tensor,
    TensorType,
    exactly,
    is_tensor_name,
)

HEADER_BYTES_MAX = 32 * 1024 * 1024
TENSORS_MAX = 100_000
METADATA_ENTRIES_MAX = 256
METADATA_CHARACTERS_MAX = 4096
CHUNK_BYTES = 1024 * 1024


class TensorFile:
    """A safetensors file open for reading; its header is checked, its tensors are read on demand.

    Attributes:
        tensors: By name. Their chunks can be read until the file is closed.
        metadata: The file's own free-form texts.
    """

    def __init__(self, path: Path) -> None:
        """Open and check the file.

        Raises:
            NotFoundError: There is no such file.
            RegistryUsageError: It cannot be opened.
            TensorFormatError: It is not a well-formed safetensors file.
        """
        self._path = path
        self._descriptor = open_input(path)
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read_header(self) -> None:
        status = os.fstat(self._descriptor)
        if status.st_size < 8:
            raise self._bad(f"only {status.st_size} bytes")
        header_length = int.from_bytes(self._read(0, 8), "little")
        if header_length > min(status.st_size - 8, HEADER_BYTES_MAX):
            raise self._bad(f"its first 8 bytes announce a header of {header_length} bytes")
        self._data_start = 8 + header_length
        header = self._parse(self._read(8, header_length))
        self.metadata = self._checked_metadata(header.pop("__metadata__", {}))
        self.tensors = self._checked_tensors(header, status.st_size - self._data_start)

    def _parse(self, content: bytes) -> dict[str, Any]:
        if not content.startswith(b"{"):
            raise self._bad("its header does not begin with '{'")
        try:
            header = json.loads(content, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise self._bad(f"its header is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise self._bad("its header is not one JSON object")
        return header

    def _checked_metadata(self, metadata: Any) -> dict[str, str]:
        if not isinstance(metadata, dict) or len(metadata) > METADATA_ENTRIES_MAX:
            raise self._bad(f"__metadata__ is not an object of at most {METADATA_ENTRIES_MAX}")
        for text in (*metadata, *metadata.values()):
            if not isinstance(text, str) or len(text) > METADATA_CHARACTERS_MAX:
                raise self._bad(
                    f"__metadata__ holds more than texts of {METADATA_CHARACTERS_MAX} characters"
                )
        return metadata

    def _checked_tensors(self, header: Mapping[str, Any], data_bytes: int) -> dict[str, Tensor]:
        if not 1 <= len(header) <= TENSORS_MAX:
            raise self._bad(f"{len(header)} tensors, not 1 to {TENSORS_MAX}")
        tensors, ranges = {}, []
        for name, entry in header.items():
            self._check_tensor_name(name)
            kind, start, end = self._checked_entry(name, entry)
            ranges.append((start, end))
            tensors[name] = Tensor(kind, self._chunk_reader(self._data_start + start, kind.nbytes))
        position = 0
        for start, end in sorted(ranges):
            if start != position:
                raise self._bad(f"a gap or overlap of tensors at byte {start}")
            position = end
        if position != data_bytes:
            raise self._bad(f"{data_bytes} bytes of tensors where the header says {position}")
        return tensors

    def _check_tensor_name(self, name: str) -> None:
        if not is_tensor_name(name):
            raise self._bad(
                f"tensor name {name[:80]!r} is empty, longer than {TENSOR_NAME_CHARACTERS_MAX} "
                "or not printable"
            )

    def _checked_entry(self, name: str, entry: Any) -> tuple[TensorType, int, int]:
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end]} if len(
                entry
            ) == 3 and all(type(number) is int for number in (*shape, start, end)):
                try:
                    kind = TensorType(dtype, tuple(shape))
                except TensorFormatError as error:
                    raise self._bad(f"tensor {name!r}: {error}") from error
                if start < 0 or end - start != kind.nbytes:
                    raise self._bad(f"tensor {name!r} does not fill its byte range")
                return kind, start, end
        raise self._bad(f"tensor {name!r} has not exactly dtype, shape and data_offsets")

    def _chunk_reader(self, start: int, length: int) -> Callable[[], Iterator[bytes]]:
        def chunks() -> Iterator[bytes]:
            for offset in range(0, length, CHUNK_BYTES):
                yield self._read(start + offset, min(CHUNK_BYTES, length - offset))

        return chunks

    def _read(self, start: int, length: int) -> bytes:
        """Read exactly `length` bytes: with pread, since a mapping dies when the file shrinks."""
        pieces: list[bytes] = []
        while length:
            piece = os.pread(self._descriptor, length, start)
            if not piece:
                raise self._bad("it became shorter while it was read")
            pieces.append(piece)
            start, length = start + len(piece), length - len(piece)
        return b"".join(pieces)

    def _bad(self, reason: str) -> TensorFormatError:
        return TensorFormatError(
            f"{self._path}: not a safetensors file: {reason}; save it with "
            "safetensors.torch.save_file (pickled files are never read)"
        )


def write_tensor_file(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file: whole and durable on return, or not there at all.

    The same tensors and metadata give the same bytes: tensors are laid out by
    falling element size (which keeps each aligned), then by name.

    Raises:
        RegistryUsageError: The file exists, or cannot be made there.
        TensorFormatError: A tensor gave more or fewer bytes than its type says.
    """
    names = sorted(tensors, key=lambda name: (-DTYPE_BITS[tensors[name].type.dtype], name))
    with new_file(path) as file:
        file.write(_header(names, tensors, metadata))
        for name in names:
            for chunk in exactly(tensors[name]):
                file.write(chunk)


def _header(names: list[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    position = 0
    for name in names:
        kind = tensors[name].type
        header[name] = {
            "dtype": kind.dtype,
            "shape": list(kind.shape),
            "data_offsets": [position, position + kind.nbytes],
        }
        position += kind.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    padded = text.ljust(-(-len(text) // 8) * 8)
    return len(padded).to_bytes(8, "little") + padded


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name is there twice")
    return fields
