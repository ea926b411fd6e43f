"""The user's code of a small job: imported by coordinator and workers, as a user's would be."""

import torch
from torch import nn
from torch.utils.data import TensorDataset


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def data() -> tuple[TensorDataset, TensorDataset]:
    inputs = torch.randn(120, 4)
    targets = (inputs @ torch.randn(4, 3)).argmax(dim=1)
    return TensorDataset(inputs[:90], targets[:90]), TensorDataset(inputs[90:], targets[90:])


def broken_model() -> nn.Module:
    raise ValueError("this model is broken on purpose")
