"""Which examples a worker reads in a round: the same answer in every process and every life.

A batch depends only on (seed, round, worker), so a worker that restarts in the
middle of a round computes, and signs, the same gradient again, and whoever
audits it can draw the same batch.
"""

import torch

from pliska.coordinator.wire.seed import derive_seed


def batch_indices(
    seed: int, round_number: int, worker: str, size: int, examples: int
) -> torch.Tensor:
    """Draw a batch.

    Args:
        seed: The job's seed.
        round_number: The round that the gradient is for.
        worker: The worker's name.
        size: Examples in the batch.
        examples: Examples in the training set.

    Returns:
        int64 [min(size, examples)], distinct, in the order drawn.
    """
    generator = torch.Generator().manual_seed(derive_seed("batch", seed, round_number, worker))
    return torch.randperm(examples, generator=generator)[:size]
