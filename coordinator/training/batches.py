"""Which examples are behind a lease: the same answer in every process and every life.

The training set is gone through in passes, each in an order of its own, which is
drawn from the job's seed. A pass is cut into batches; lease n is batch n of all
passes one after the other. So whoever holds the lease computes, and signs, the
same gradient, and whoever audits it draws the same batch.
"""

from functools import lru_cache

import torch

from pliska.coordinator.wire.seed import derive_seed


def batches_in_pass(size: int, examples: int) -> int:
    """Return into how many batches the training set is cut; the last one may be smaller."""
    return -(-examples // size)


def batch_indices(seed: int, lease: int, size: int, examples: int) -> torch.Tensor:
    """Return the batch behind a lease.

    Args:
        seed: The job's seed.
        lease: 0 or more.
        size: Examples in a batch.
        examples: Examples in the training set, at least one.

    Returns:
        int64 [size], distinct, in the order drawn; fewer in the last batch of a
        pass. Not to be changed.
    """
    pass_number, place = divmod(lease, batches_in_pass(size, examples))
    return _order(seed, pass_number, examples)[place * size : (place + 1) * size]


@lru_cache(maxsize=2)
def _order(seed: int, pass_number: int, examples: int) -> torch.Tensor:
    """Draw the order of one pass, int64 [examples]; two are at hand, for leases given back."""
    generator = torch.Generator().manual_seed(derive_seed("pass", seed, pass_number))
    return torch.randperm(examples, generator=generator)
