"""Everything that the next optimizer step depends on, as named tensors and settings.

A value with a digest, made by the model and kept by checkpoints. It knows
neither modules nor files.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pliska.coordinator.training.state_manifest import (
    StateManifest,
    StateTensor,
    in_order,
    leaves_of,
)
from pliska.coordinator.wire import hash_tree


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
        """Return the digest of its manifest, 32 bytes; it covers settings, names and bytes."""
        return self.sealed()[0].digest

    def sealed(self) -> tuple[StateManifest, bytes]:
        """Hash all of it; return its manifest, and the leaves below the manifest's root, joined.

        Raises:
            ModelStateError: A dtype that states do not have.
            ValueError: A setting is NaN or infinite.
        """
        views = list(self.views())
        leaves = list(leaves_of(views))
        root = hash_tree.root(leaves, sum(view.nbytes for view in views))
        entries = tuple(
            StateTensor(name, dtype_name(tensor.dtype), tuple(tensor.shape))
            for name, tensor in ((name, self.tensors[name]) for name in in_order(self.tensors))
        )
        manifest = StateManifest(settings_bytes(self.settings).decode(), entries, root)
        return manifest, b"".join(leaves)

    def views(self) -> Iterator[memoryview]:
        """Yield the bytes of the tensors in the order that the manifest lists them in."""
        for name in in_order(self.tensors):
            yield tensor_bytes(self.tensors[name])


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
