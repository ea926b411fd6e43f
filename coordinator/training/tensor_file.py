"""Named tensors as the bytes of a safetensors file, and back.

The writer yields the tensors' own memory, so a file of any size needs no
second copy of it. Called by the checkpoints; the format is the safetensors
library's (header length, JSON header, data), whose parser reads it back.
"""

import json
from collections.abc import Iterator, Mapping

import safetensors
import safetensors.torch
import torch

from pliska.coordinator.errors import DamagedStateError, ModelStateError
from pliska.coordinator.training.state_manifest import in_order
from pliska.coordinator.training.training_state import tensor_bytes

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8


def encode_tensors(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a safetensors file, piece by piece.

    Args:
        tensors: on the CPU, of a dtype that the format knows.

    Raises:
        ModelStateError: a dtype that the format does not know.
    """
    ordered = in_order(tensors)
    header: dict[str, object] = {}
    offset = 0
    for name in ordered:
        tensor = tensors[name]
        if tensor.dtype not in _DTYPES:
            raise ModelStateError(f"tensor {name}: {tensor.dtype} cannot be kept in a checkpoint")
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    yield len(encoded).to_bytes(8, "little") + encoded
    for name in ordered:
        yield tensor_bytes(tensors[name])


def data_offset(head: bytes) -> int:
    """Return where the tensors' bytes begin in the file whose first 8 bytes are given."""
    return 8 + int.from_bytes(head, "little")


def decode_tensors(content: bytes) -> dict[str, torch.Tensor]:
    """Read a whole safetensors file.

    Raises:
        DamagedStateError: the bytes are not such a file.
    """
    try:
        tensors: dict[str, torch.Tensor] = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise DamagedStateError(f"not a safetensors file: {error}") from error
    return tensors
