"""Everything that the next optimizer step depends on, as named tensors and settings.

A value with a digest, made by the model and kept by checkpoints. It knows
neither modules nor files.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pliska.coordinator.wire import hash_tree

_DOMAIN = b"pliska/training-state/1"


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Parameters, optimizer state and settings of one model version.

    Attributes:
        tensors: By name, on the CPU. They may be views of a live model: copy
            what must outlive the next step.
        settings: What is not a tensor (step, hyperparameters), as JSON has it.
    """

    tensors: Mapping[str, torch.Tensor]
    settings: Mapping[str, Any]

    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical bytes, 32 bytes.

        They are the settings as sorted JSON, then for each tensor in order of
        its name: name, dtype, shape, and the SHA-256 of its elements in C order.
        Lengths stand before whatever varies, so no two states share their bytes.
        """
        hasher = hashlib.sha256(_DOMAIN)
        _add(hasher, settings_bytes(self.settings))
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            _add(hasher, name.encode())
            _add(hasher, dtype_name(tensor.dtype).encode())
            _add(hasher, json.dumps(list(tensor.shape)).encode())
            hasher.update(hashlib.sha256(tensor_bytes(tensor)).digest())
        return hasher.digest()


def settings_bytes(settings: Mapping[str, Any]) -> bytes:
    """Return the settings as JSON with sorted keys; a float keeps its exact value.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(
        dict(settings), sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def dtype_name(dtype: torch.dtype) -> str:
    """Return `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the elements in C order as bytes, without a copy where they already lie so."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data


def vector_digest(vector: torch.Tensor) -> bytes:
    """Return the root of the hash tree over the bytes of a float32 vector [d], 32 bytes.

    Whoever receives the bytes in chunks can check each chunk against this root.
    """
    view = tensor_bytes(vector)
    return hash_tree.root(hash_tree.leaves(view), view.nbytes)


def _add(hasher: "hashlib._Hash", field: bytes) -> None:
    hasher.update(len(field).to_bytes(8, "little"))
    hasher.update(field)
