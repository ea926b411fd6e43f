"""The manifest of a gradient: which tensors lie where in the flat vector.

It is registered once per job; every gradient header carries only its digest.
Not the manifest of a model version in the registry.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Annotated, ClassVar, Self

from pliska.coordinator.wire.encoding import Length, decode, encode
from pliska.coordinator.wire.errors import MalformedError, TooLargeError
from pliska.coordinator.wire.limits import DIMENSION_MAX, TENSOR_RANK_MAX, TENSORS_MAX

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
"""The dtypes a gradient's tensors may have."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: its place in the concatenation of all tensors.

    Attributes:
        name: As the model calls it.
        dtype: One of `ITEM_BYTES`.
        shape: Sizes of its axes; empty for a scalar.
        offset: First byte, in the tensors' own dtypes.
        nbytes: Bytes, in its own dtype.
    """

    name: Annotated[str, Length(1, 1024)]
    dtype: Annotated[str, Length(1, 16)]
    shape: Annotated[tuple[int, ...], Length(0, TENSOR_RANK_MAX)]
    offset: int
    nbytes: int

    @property
    def numel(self) -> int:
        """How many numbers the tensor holds."""
        return prod(self.shape)


@dataclass(frozen=True)
class Manifest:
    """All tensors of a gradient, in the order of the flat vector.

    Raises:
        MalformedError: The entries do not lie one behind the other, a name comes
            twice, or a dtype is unknown.
        TooLargeError: The gradient would have more than `DIMENSION_MAX` numbers.
    """

    wire_type: ClassVar[str] = "pliska/manifest/1"

    entries: Annotated[tuple[TensorEntry, ...], Length(1, TENSORS_MAX)]

    def __post_init__(self) -> None:
        end = 0
        dimension = 0
        for entry in self.entries:
            _check_entry(entry, end)
            end += entry.nbytes
            dimension += entry.numel
            if dimension > DIMENSION_MAX:
                raise TooLargeError("the gradient's dimension", size=dimension, limit=DIMENSION_MAX)
        if len({entry.name for entry in self.entries}) != len(self.entries):
            raise MalformedError("two tensors of the manifest have the same name")

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> Self:
        """Lay out (name, dtype, shape) one behind the other.

        Raises:
            MalformedError: A name comes twice, or a dtype is not one of `ITEM_BYTES`.
        """
        entries = []
        offset = 0
        for name, dtype, shape in tensors:
            nbytes = prod(shape) * _item_bytes(name, dtype)
            entries.append(TensorEntry(name, dtype, tuple(shape), offset, nbytes))
            offset += nbytes
        return cls(tuple(entries))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Read a manifest from its canonical bytes.

        Raises:
            MalformedError: `data` is not one canonical manifest.
            TooLargeError: It is over a limit.
        """
        return decode(cls, data)

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, over which the digest is taken."""
        return encode(self)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        return sha256(self.to_bytes()).digest()

    @cached_property
    def dimension(self) -> int:
        """How many numbers the flat gradient holds: d."""
        return sum(entry.numel for entry in self.entries)


def _check_entry(entry: TensorEntry, offset: int) -> None:
    nbytes = entry.numel * _item_bytes(entry.name, entry.dtype)
    if (entry.offset, entry.nbytes) != (offset, nbytes):
        raise MalformedError(
            f"tensor {entry.name!r} has offset {entry.offset} and {entry.nbytes} bytes; "
            f"its place, dtype and shape say {offset} and {nbytes}"
        )


def _item_bytes(name: str, dtype: str) -> int:
    if dtype not in ITEM_BYTES:
        raise MalformedError(
            f"tensor {name!r} has dtype {dtype!r}; a gradient's may be {', '.join(ITEM_BYTES)}"
        )
    return ITEM_BYTES[dtype]
