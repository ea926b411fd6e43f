"""Codecs: a gradient's float32 vector to payload bytes and back.

Rules and distances see decoded values only. A codec does not hash, sign or
check finiteness of what it encodes; `check_finite` guards what was decoded.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pliska.coordinator.wire.encoding import Length, Name
from pliska.coordinator.wire.errors import MalformedError, NonFiniteError, SchemaError
from pliska.coordinator.wire.limits import CODEC_PARAMETERS_MAX

Vector: TypeAlias = npt.NDArray[np.float32]
"""float32 [d]."""
CodecParameters: TypeAlias = tuple[tuple[str, str], ...]
"""(name, value) pairs, sorted by name."""

_WIRE_FLOAT32 = np.dtype("<f4")
_BLOCK = 65_536
"""Numbers looked at together: 256 KiB, which stays in the cache."""


@dataclass(frozen=True, slots=True)
class CodecSpec:
    """What a header says about the codec of its payload.

    Attributes:
        id: The codec's name.
        params: Sorted by name, no name twice.
        ef_flag: Whether the worker carries the codec's error forward (error feedback).
    """

    id: Name
    params: Annotated[
        tuple[tuple[Name, Annotated[str, Length(0, 256)]], ...], Length(0, CODEC_PARAMETERS_MAX)
    ] = ()
    ef_flag: bool = False

    def __post_init__(self) -> None:
        names = [name for name, _ in self.params]
        if names != sorted(set(names)):
            raise MalformedError("codec parameters are sorted by name, each name once")


class Codec(Protocol):
    """Turns float32 [d] into `encoded_bytes(d)` bytes and back."""

    @property
    def id(self) -> str:
        """Its name in headers."""
        ...

    @property
    def params(self) -> CodecParameters:
        """Its parameters in headers."""
        ...

    def encoded_bytes(self, d: int) -> int:
        """Return the exact payload length of a vector of d numbers."""
        ...

    def encode(self, vector: Vector) -> memoryview:
        """Encode a vector; the view may share its memory, which then must not change."""
        ...

    def landing(self, row: Vector) -> memoryview:
        """Return writable memory to receive a payload in, for `decode_into(landing, row)`.

        It is the row's own where the encoding is the row's memory layout.
        """
        ...

    def decode_into(self, payload: memoryview | bytes, row: Vector) -> None:
        """Decode a payload of exactly `encoded_bytes(row.size)` bytes into a row.

        Raises:
            SchemaError: The payload has another length, or values out of bounds.
        """
        ...


class Float32Codec:
    """Little-endian float32: no loss, and on most machines no copy."""

    id = "float32"
    params: CodecParameters = ()

    def encoded_bytes(self, d: int) -> int:
        """Return 4 bytes for each number."""
        return _WIRE_FLOAT32.itemsize * d

    def encode(self, vector: Vector) -> memoryview:
        """Encode; the view is the vector's own memory where its layout allows."""
        _check_vector(vector)
        return _bytes_of(np.ascontiguousarray(vector, dtype=_WIRE_FLOAT32))

    def landing(self, row: Vector) -> memoryview:
        """Return the row's own memory, or new memory where its layout is another."""
        _check_vector(row)
        is_wire_layout = row.flags.c_contiguous and row.dtype == _WIRE_FLOAT32
        return _bytes_of(row if is_wire_layout else np.empty(row.size, dtype=_WIRE_FLOAT32))

    def decode_into(self, payload: memoryview | bytes, row: Vector) -> None:
        """Copy the numbers into the row, unless they were received there."""
        _check_vector(row)
        if len(payload) != self.encoded_bytes(row.size):
            raise SchemaError(
                f"a float32 payload of {row.size} numbers has {self.encoded_bytes(row.size)} "
                f"bytes, not {len(payload)}"
            )
        numbers = np.frombuffer(payload, dtype=_WIRE_FLOAT32)
        if not np.may_share_memory(numbers, row):
            row[:] = numbers


_CODECS: dict[str, Codec] = {Float32Codec.id: Float32Codec()}


def codec_named(id: str, params: Iterable[tuple[str, str]] = ()) -> Codec:  # noqa: A002
    """Return the codec with this id and these parameters.

    Raises:
        SchemaError: There is none.
    """
    codec = _CODECS.get(id)
    if codec is None:
        raise SchemaError(f"no codec is called {id!r}; there are {', '.join(sorted(_CODECS))}")
    if tuple(params) != codec.params:
        raise SchemaError(f"the codec {id} takes no parameters {dict(params)}")
    return codec


def check_finite(row: Vector) -> None:
    """Look at every number of a decoded gradient, float32 [d].

    Raises:
        NonFiniteError: One is NaN or infinite; the error names the first.
    """
    for start in range(0, row.size, _BLOCK):
        is_finite = np.isfinite(row[start : start + _BLOCK])
        if not is_finite.all():
            index = start + int(np.argmin(is_finite))
            raise NonFiniteError(index, float(row[index]))


def _check_vector(vector: Vector) -> None:
    if vector.ndim != 1 or vector.dtype != np.float32:
        raise MalformedError(
            f"a gradient is one float32 vector, not {vector.dtype} with {vector.ndim} axes"
        )


def _bytes_of(vector: npt.NDArray[np.float32]) -> memoryview:
    return vector.view(np.uint8).data
