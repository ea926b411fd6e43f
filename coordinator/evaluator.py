"""How good the committed versions are on the job's test set.

It has a module of its own, so that evaluating never holds up a step. Advisory:
nothing is decided by it.
"""

import numpy as np
import torch
from torch.utils.data import DataLoader

from pliska.coordinator.errors import ModelStateError
from pliska.coordinator.training.training_module import (
    build_module,
    layout_of,
    load_data,
    trainable,
)
from pliska.coordinator.wire.job import Job

BATCH = 256
"""Examples that are evaluated at once."""


class Evaluator:
    """Measures accuracy. Use it from one thread at a time."""

    def __init__(self, job: Job) -> None:
        """Build the module and load the test set.

        Raises:
            JobFileError: A function that the job names is missing or failed.
        """
        self._module = build_module(job)
        self._trainable = trainable(self._module)
        self._layout = layout_of(self._module)
        _, self._test = load_data(job)

    def accuracy(self, parameters: bytes) -> float:
        """Return the share of examples whose largest output is at the target's class, 0 to 1.

        Args:
            parameters: float32 [d], as they are published.

        Raises:
            ModelStateError: The output is not [batch, classes].
        """
        vector = torch.from_numpy(np.frombuffer(parameters, dtype="<f4").copy())
        for name, values in self._layout.unflatten(vector).items():
            self._trainable[name].data = values
        right = total = 0
        self._module.eval()
        # A generator of its own: a DataLoader draws from the global one otherwise.
        loader = DataLoader(self._test, BATCH, generator=torch.Generator())
        with torch.no_grad():
            for inputs, targets in loader:
                outputs = self._module(inputs)
                if outputs.ndim != 2 or len(outputs) != len(targets):
                    raise ModelStateError(
                        f"the model's output is {tuple(outputs.shape)}, "
                        f"expected ({len(targets)}, classes)"
                    )
                right += int((outputs.argmax(dim=1) == targets).sum())
                total += len(targets)
        return right / total
