"""One worker's arithmetic: parameters and a lease in, gradient of its batch out.

A worker computes its own gradient; a coordinator, or whoever audits, computes it
again to compare (docs/adr/0002). Not safe for two threads at once.
"""

from collections.abc import Callable, Sized
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from pliska.coordinator.training.batches import batch_indices
from pliska.coordinator.training.training_module import (
    build_module,
    layout_of,
    load_data,
    manifest_of,
    seeded,
    trainable,
)
from pliska.coordinator.training.user_code import load_function
from pliska.coordinator.wire import Manifest
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.seed import derive_seed

Targets = Callable[[torch.Tensor], torch.Tensor]
"""Changes the targets of a batch; the identity in an honest worker."""


class Computation:
    """The gradients of one job's loss.

    Attributes:
        parameters: float32 [d]; the module's parameters are views of it, so
            whoever downloads into it changes the model in place.
    """

    def __init__(self, job: Job) -> None:
        """Build the module and load the data.

        Raises:
            JobFileError: A function that the job names is missing or failed.
        """
        self.job = job
        self._module = build_module(job)
        self._layout = layout_of(self._module)
        self._trainable = trainable(self._module)
        self._loss = load_function(job, "data.loss")
        self._train, _ = load_data(job)
        self._examples = len(cast("Sized", self._train))  # load_data checked that it has a length
        flat = self._layout.flatten(self._trainable)
        for name, values in self._layout.unflatten(flat).items():
            self._trainable[name].data = values
        self.parameters: NDArray[np.float32] = flat.numpy()

    @property
    def dimension(self) -> int:
        """Length d of the flat vectors."""
        return self._layout.d

    @property
    def classes(self) -> int:
        """Width of the module's output: how many classes a classifier tells apart."""
        inputs, _ = default_collate([self._train[0]])
        with torch.no_grad():
            return int(self._module(inputs).shape[-1])

    def manifest(self) -> Manifest:
        """Return the manifest that this worker's gradients have."""
        return manifest_of(self._layout)

    def gradient(self, lease: int, targets: Targets = lambda targets: targets) -> torch.Tensor:
        """Differentiate the loss of a lease's batch at the present parameters.

        What the module draws at random (dropout) and what the data draws
        (augmentation) follows from job and lease, as the batch does: the same
        numbers come out whoever computes them, and in an audit.

        Args:
            lease: Which batch; a worker's own, unless it colludes.
            targets: Changes the targets of the batch.

        Returns:
            float32 [d], in the layout's order; new memory.
        """
        with seeded(derive_seed("gradient", self.job.seed, lease)):
            inputs, wanted = self._batch(lease)
            self._module.train()
            self._module.zero_grad(set_to_none=True)
            torch.autograd.backward(self._loss(self._module(inputs), targets(wanted)))
        return self._layout.flatten(
            {
                name: torch.zeros_like(each) if each.grad is None else each.grad
                for name, each in self._trainable.items()
            }
        )

    def _batch(self, lease: int) -> tuple[torch.Tensor, torch.Tensor]:
        size, examples = self.job.data.batch, self._examples
        indices = batch_indices(self.job.seed, lease, size, examples)
        inputs, targets = default_collate([self._train[int(index)] for index in indices])
        return inputs, targets
