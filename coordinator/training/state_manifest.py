"""What a training state consists of, without its bytes, and the digest that names it.

The bytes of a state are its tensors one behind the other, wider elements first
and then by name, each in C order. One hash tree lies over all of them, so that
whoever fetches a state in chunks, from donors that it need not trust, checks
each chunk against the digest in a commit record. Checkpoints keep the bytes in
the same order. It knows neither models nor files.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from math import prod
from typing import Annotated, Any, ClassVar, Self

import torch

from pliska.coordinator.errors import DamagedStateError, ModelStateError
from pliska.coordinator.wire import hash_tree
from pliska.coordinator.wire.encoding import Digest, Length, decode, encode
from pliska.coordinator.wire.errors import WireError
from pliska.coordinator.wire.limits import CHUNK_BYTES, TENSOR_RANK_MAX, TENSORS_MAX

SETTINGS_BYTES_MAX = 2**20
"""Settings of one state, as JSON."""
STATE_BYTES_MAX = 64 * 2**30
"""All tensors of one state."""

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of a state.

    Attributes:
        name: As the training state has it.
        dtype: Such as `float32`.
        shape: Sizes of its axes; empty for a scalar.
    """

    name: Annotated[str, Length(1, 1024)]
    dtype: Annotated[str, Length(1, 16)]
    shape: Annotated[tuple[int, ...], Length(0, TENSOR_RANK_MAX)]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * _DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class StateManifest:
    """Names, dtypes and shapes of a state in the order of its bytes, and the root over them.

    Attributes:
        settings: What is not a tensor, as JSON with sorted keys.
        tensors: In the order of their bytes.
        root: Of the hash tree over the bytes of all tensors.

    Raises:
        ModelStateError: A dtype that states do not have, tensors out of order, or
            more than `STATE_BYTES_MAX` bytes.
    """

    wire_type: ClassVar[str] = "pliska/training-state/2"

    settings: Annotated[str, Length(2, SETTINGS_BYTES_MAX)]
    tensors: Annotated[tuple[StateTensor, ...], Length(0, TENSORS_MAX)]
    root: Digest

    def __post_init__(self) -> None:
        for each in self.tensors:
            if each.dtype not in _DTYPES:
                raise ModelStateError(f"tensor {each.name}: {each.dtype} cannot be kept in a state")
        keys = [(-_DTYPES[each.dtype].itemsize, each.name) for each in self.tensors]
        if any(key >= following for key, following in pairwise(keys)):
            raise ModelStateError("the tensors of a state are listed twice or out of order")
        if self.payload_len > STATE_BYTES_MAX:
            raise ModelStateError(f"a state has at most {STATE_BYTES_MAX} bytes")

    @property
    def payload_len(self) -> int:
        """Bytes of all tensors."""
        return sum(each.nbytes for each in self.tensors)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes, 32 bytes: the state's name in a commit record."""
        return sha256(self.to_bytes()).digest()

    def to_bytes(self) -> bytes:
        """Return the canonical bytes."""
        return encode(self)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, digest: bytes) -> Self:
        """Read the manifest that has this digest.

        Raises:
            DamagedStateError: The bytes are no manifest, or another one.
        """
        try:
            manifest = decode(cls, data)
        except (WireError, ModelStateError) as error:
            raise DamagedStateError(f"not the manifest of a state: {error}") from error
        if manifest.digest != digest:
            raise DamagedStateError("the manifest of another state than the committed one")
        return manifest

    def tensors_of(self, payload: memoryview) -> dict[str, torch.Tensor]:
        """Return the tensors as views of their bytes, which must outlive them.

        Args:
            payload: The state's bytes, writable, already checked against `root`.
        """
        found = {}
        offset = 0
        for each in self.tensors:
            dtype = _DTYPES[each.dtype]
            if each.nbytes == 0:
                tensor = torch.empty(each.shape, dtype=dtype)
            else:
                view = payload[offset : offset + each.nbytes]
                tensor = torch.frombuffer(view, dtype=dtype).reshape(each.shape)
            found[each.name] = tensor
            offset += each.nbytes
        return found

    def settings_table(self) -> dict[str, Any]:
        """Return the settings.

        Raises:
            DamagedStateError: They are not a table in JSON.
        """
        try:
            table = json.loads(self.settings)
        except (ValueError, RecursionError) as error:
            raise DamagedStateError(f"the settings of a state are not JSON: {error}") from error
        if not isinstance(table, dict):
            raise DamagedStateError("the settings of a state are not a table")
        return table


def in_order(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names in the order of the state's bytes: wider elements first, then by name.

    It keeps every tensor aligned to its own element.
    """
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def leaves_of(views: Iterable[memoryview]) -> Iterator[bytes]:
    """Yield the leaves of the hash tree over buffers that lie one behind the other."""
    pending = bytearray()
    for view in views:
        start = 0
        if pending:
            start = min(CHUNK_BYTES - len(pending), len(view))
            pending += view[:start]
            if len(pending) < CHUNK_BYTES:
                continue
            yield hash_tree.leaf(bytes(pending))
            pending.clear()
        whole = start + (len(view) - start) // CHUNK_BYTES * CHUNK_BYTES
        for offset in range(start, whole, CHUNK_BYTES):
            yield hash_tree.leaf(view[offset : offset + CHUNK_BYTES])
        pending += view[whole:]
    if pending:
        yield hash_tree.leaf(bytes(pending))
