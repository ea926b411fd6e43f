"""A small job: its file, and the user's code that it names."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from pliska.coordinator.wire.job import Job, parse_job

TEXT = """
name = "toy"
seed = 11
model = {{ factory = "training.toy_job:model" }}
data = {{ factory = "training.toy_job:data", batch = 8 }}
rule = {{ {rule} }}
optimizer = {{ name = "sgd", lr = 0.1, momentum = 0.9 }}
checkpoint = {{ every = 3 }}
evaluate = {{ every = {evaluate_every} }}

[rounds]
count = {count}
workers = {workers}
quorum = {quorum}
soft_deadline_s = {soft_deadline_s}
deadline_s = {deadline_s}
"""


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def forgetful_model() -> nn.Module:
    """A module that draws at random in training."""
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def data() -> tuple[TensorDataset, TensorDataset]:
    inputs = torch.randn(120, 4)
    targets = (inputs @ torch.randn(4, 3)).argmax(dim=1)
    return TensorDataset(inputs[:90], targets[:90]), TensorDataset(inputs[90:], targets[90:])


def toy_job(
    *,
    count: int = 8,
    workers: int = 3,
    quorum: int = 3,
    rule: str = 'name = "mean", f = 1',
    soft_deadline_s: float = 60.0,
    deadline_s: float = 90.0,
    evaluate_every: int = 1000,
    more: str = "",
) -> Job:
    """Return the job. Its rounds wait for everybody unless they are given deadlines.

    `more` are further tables in TOML.
    """
    text = TEXT.format(
        count=count,
        workers=workers,
        quorum=quorum,
        rule=rule,
        soft_deadline_s=soft_deadline_s,
        deadline_s=deadline_s,
        evaluate_every=evaluate_every,
    )
    return parse_job(f"{text}\n{more}", "toy.toml")
