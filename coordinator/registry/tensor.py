"""Tensors as dtype, shape and raw C-order little-endian bytes; no numeric library is involved."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pliska.coordinator.registry.errors import TensorFormatError

TENSOR_NAME_CHARACTERS_MAX = 1024
TENSOR_DIMENSIONS_MAX = 64
TENSOR_BYTES_MAX = 2**46

DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
}
"""Bits of one element of each dtype, under the format's own names."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """What the bytes of a tensor mean.

    Attributes:
        dtype: A key of `DTYPE_BITS`.
        shape: Lengths of the dimensions; empty for a scalar.
    """

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a type that no tensor can have."""
        if self.dtype not in DTYPE_BITS:
            raise TensorFormatError(f"unknown dtype {self.dtype[:40]!r}")
        if len(self.shape) > TENSOR_DIMENSIONS_MAX or any(length < 0 for length in self.shape):
            raise TensorFormatError(f"not a tensor's shape: {str(self.shape)[:80]}")
        bits = DTYPE_BITS[self.dtype] * math.prod(self.shape)
        if bits % 8 or bits > 8 * TENSOR_BYTES_MAX:
            raise TensorFormatError(
                f"shape {str(self.shape)[:80]} of {self.dtype} is not a whole number of bytes "
                f"up to {TENSOR_BYTES_MAX}"
            )

    @property
    def item_bytes(self) -> int:
        """Bytes of one element; 1 where several share a byte."""
        return max(1, DTYPE_BITS[self.dtype] // 8)

    @property
    def nbytes(self) -> int:
        """Length of the tensor's bytes."""
        return DTYPE_BITS[self.dtype] * math.prod(self.shape) // 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's type and a way to read its C-order little-endian bytes, more than once.

    Attributes:
        type: dtype and shape.
        chunks: Returns the bytes from the beginning, in pieces, `type.nbytes` in all.
        is_held: Whether the caller holds the bytes in memory and lets nobody change them
            while they are used, so that they need not be compared when they are read again.
    """

    type: TensorType
    chunks: Callable[[], Iterator[bytes | memoryview]]
    is_held: bool = False

    @classmethod
    def of_bytes(cls, dtype: str, shape: tuple[int, ...], content: bytes | memoryview) -> "Tensor":
        """Return the tensor with these C-order little-endian bytes, which must not change.

        Raises:
            TensorFormatError: dtype and shape do not go with that many bytes.
        """
        kind = TensorType(dtype, shape)
        view = memoryview(content).cast("B")
        if kind.nbytes != view.nbytes:
            raise TensorFormatError(
                f"{dtype} of shape {shape} takes {kind.nbytes} bytes, not {view.nbytes}"
            )
        return cls(kind, lambda: iter((view,)), is_held=True)


def exactly(tensor: Tensor) -> Iterator[bytes | memoryview]:
    """Yield the tensor's bytes; raise `TensorFormatError` where they are too few or too many."""
    received = 0
    for chunk in tensor.chunks():
        received += len(chunk)
        if received > tensor.type.nbytes:
            break
        yield chunk
    if received != tensor.type.nbytes:
        raise TensorFormatError(f"a tensor of {tensor.type.nbytes} bytes gave {received}")


def is_tensor_name(name: str) -> bool:
    """Say whether `name` may name a tensor: printable, not empty, not too long."""
    return 0 < len(name) <= TENSOR_NAME_CHARACTERS_MAX and name.isprintable()
