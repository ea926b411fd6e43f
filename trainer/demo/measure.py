"""How good a finished run's last version is, measured from its file by the demonstration itself."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from pliska.trainer.demo import digits
from pliska.trainer.demo.jobs import HIDDEN
from pliska.trainer.demo.options import DemoOptions


def measured_accuracy(model_file: Path, options: DemoOptions) -> float:
    """Return the share of the test images that a model file reads right, 0 to 1."""
    _, test = digits.data(options.data_source, options.seed)
    images, labels = test[:]
    module = digits.model(images.shape[1], HIDDEN)
    module.load_state_dict(load_file(model_file))
    with torch.no_grad():
        return float((module(images).argmax(dim=1) == labels).double().mean())
