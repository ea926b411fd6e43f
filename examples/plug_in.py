"""An ordinary PyTorch loop over eight sources of data, two of which lie.

Two lines make it robust; both are marked. Run it from the repository:

    python examples/plug_in.py            # with them
    python examples/plug_in.py --plain    # without them: the liars win

It needs scikit-learn for the handwritten digits.
"""

import sys

import torch
from sklearn.datasets import load_digits

from pliska.aggregation import MultiKrum
from pliska.trainer import RobustOptimizer  # the first line

SOURCES, LIARS, STEPS, BATCH = 8, 2, 60, 64

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data / 16.0, dtype=torch.float32)
targets = torch.tensor(digits.target)
order = torch.randperm(len(inputs))
test, shards = order[:357], order[357:].reshape(SOURCES, -1)

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
if "--plain" not in sys.argv:
    optimizer = RobustOptimizer(optimizer, MultiKrum(f=LIARS))  # the second line

for _ in range(STEPS):
    optimizer.zero_grad()
    for source, shard in enumerate(shards):
        batch = shard[torch.randperm(len(shard))[:BATCH]]
        loss = torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        if source < LIARS:
            loss = -10 * loss  # what a liar does to your model
        loss.backward()  # one pass for each source: that is what the rule compares
    optimizer.step()

accuracy = (model(inputs[test]).argmax(1) == targets[test]).float().mean().item()
print(f"accuracy {accuracy:.3f}")
