"""An ordinary PyTorch loop over eight sources of data, two of which lie.

The two marked lines are all that a loop needs. Run it with:

    python examples/plug_in.py            # with the robust rule
    python examples/plug_in.py --plain    # without it: the liars win
"""

import sys

import torch
from sklearn.datasets import load_digits

from pliska.aggregation import MultiKrum
from pliska.trainer import RobustOptimizer

SOURCES, LIARS, STEPS = 8, 2, 60

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data / 16.0, dtype=torch.float32)
targets = torch.tensor(digits.target)
order = torch.randperm(len(inputs))
test, shards = order[:357], order[357:].reshape(SOURCES, 180)

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
if "--plain" not in sys.argv:
    optimizer = RobustOptimizer(optimizer, MultiKrum(f=LIARS))  # the first line

for _ in range(STEPS):
    optimizer.zero_grad()
    for source, shard in enumerate(shards):
        batch = shard[torch.randperm(len(shard))[:64]]
        loss = torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        if source < LIARS:
            loss = -10 * loss
        loss.backward()  # one backward pass for each source: the second line is not to merge them
    optimizer.step()

accuracy = (model(inputs[test]).argmax(1) == targets[test]).float().mean().item()
print(f"accuracy {accuracy:.3f}")
