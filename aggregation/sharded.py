"""A rule over gradients that stay where they are: every process holds one row.

Each process takes over some columns of all rows (one gradient's length is sent
and one received), sums what distances and reports need over its columns, adds
those few numbers up with the others, combines its columns, and hands the result
round (once more a gradient's length). Every process decides from the same sums,
so all come to the result that one machine with all rows comes to. Whoever
trains with `torch.distributed` calls `aggregate_sharded` from every process.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Unpack

import torch
import torch.distributed as dist
from torch import Tensor

from pliska.aggregation.aggregator import Rule
from pliska.aggregation.errors import ShapeError
from pliska.aggregation.faces import Submission, canonical
from pliska.aggregation.result import Aggregation
from pliska.aggregation.rows import Rows, Shard
from pliska.aggregation.setting import Given

ALIGNMENT = 16
"""Shards start at multiples of this, as kernels take columns."""


def aggregate_sharded(
    rule: Rule,
    gradient: Tensor,
    workers: Sequence[str] | None = None,
    group: dist.ProcessGroup | None = None,
    **given: Unpack[Given],
) -> Aggregation[Tensor]:
    """Combine one gradient per process by `rule`; every process gets the same result.

    Each process sends and receives about two gradients' length, whatever their
    number. All must call it together, with gradients of one length and dtype.

    Args:
        rule: The same everywhere.
        gradient: Floating [d], this process's own; not mutated.
        workers: Worker of each rank, the same everywhere; None names them by rank.
        group: Of `torch.distributed`; None is the default group.
        **given: As for `Rule.aggregate`, without vectors.

    Returns:
        The aggregate [d] in the gradient's dtype and one report per worker.
        The reason for a refused row may name what only one process has seen.

    Raises:
        ShapeError: The gradient is not a vector, or differs in length or dtype.
    """
    _require_agreement(gradient, group)
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    names = [str(i) for i in range(size)] if workers is None else list(workers)
    bounds = shard_bounds(len(gradient), size)
    slices = _exchanged(gradient.detach(), bounds, rank, group)
    order = canonical(names)
    shard = Shard(bounds[rank], len(gradient), lambda sums: _total(sums, size, group))
    width = bounds[rank + 1] - bounds[rank]
    rows = Rows(tuple(slices[i] for i in order), width, shard=shard)
    handed_in = Submission(tuple(names[i] for i in order), rows, {}, lambda vector: vector)
    part = rule.aggregate(handed_in, **given)
    whole = _gathered(part.vector, bounds, rank, group)
    return Aggregation(whole.to(gradient.dtype), part.account, part.faults)


def shard_bounds(d: int, size: int) -> list[int]:
    """Return where the shards of d columns start and end: size + 1 numbers."""
    width = -(-d // (size * ALIGNMENT)) * ALIGNMENT
    return [min(i * width, d) for i in range(size + 1)]


def _require_agreement(gradient: Tensor, group: dist.ProcessGroup | None) -> None:
    if gradient.ndim != 1 or not gradient.dtype.is_floating_point:
        raise ShapeError(
            f"a gradient must be floating [d], not {gradient.dtype} {tuple(gradient.shape)}"
        )
    mine = [len(gradient), gradient.element_size(), gradient.dtype == torch.bfloat16]
    shape = torch.tensor(mine, dtype=torch.int64)
    least, most = shape.clone(), shape.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN, group)
    dist.all_reduce(most, dist.ReduceOp.MAX, group)
    smallest = shard_bounds(len(gradient), dist.get_world_size(group))[-2]
    if not torch.equal(least, most):
        raise ShapeError("the processes' gradients differ in length or dtype")
    if smallest >= len(gradient):
        raise ShapeError(f"{len(gradient)} values are too few to share: aggregate them whole")


def _exchanged(
    gradient: Tensor, bounds: list[int], rank: int, group: dist.ProcessGroup | None
) -> list[Tensor]:
    """Give every process its columns of this gradient; return this one's columns of all."""
    first, end = bounds[rank], bounds[rank + 1]
    slices = [
        gradient[first:end].clone() if peer == rank else gradient.new_empty(end - first)
        for peer in range(len(bounds) - 1)
    ]
    pieces = [gradient[a:b].contiguous() for a, b in pairwise(bounds)]
    _send_and_receive(pieces, slices, rank, group)
    return slices


def _gathered(
    part: Tensor, bounds: list[int], rank: int, group: dist.ProcessGroup | None
) -> Tensor:
    """Hand this process's part of the result round; return the whole."""
    whole = part.new_empty(bounds[-1])
    parts = [whole[a:b] for a, b in pairwise(bounds)]
    parts[rank].copy_(part)
    _send_and_receive([part.contiguous()] * len(parts), parts, rank, group)
    return whole


def _send_and_receive(
    outgoing: Sequence[Tensor],
    incoming: Sequence[Tensor],
    rank: int,
    group: dist.ProcessGroup | None,
) -> None:
    """Send outgoing[peer] to, and receive incoming[peer] from, every other process at once."""
    operations = []
    for peer in range(len(outgoing)):
        if peer != rank:
            to = peer if group is None else dist.get_global_rank(group, peer)
            operations.append(dist.P2POp(dist.isend, outgoing[peer], to, group))
            operations.append(dist.P2POp(dist.irecv, incoming[peer], to, group))
    if operations:
        for request in dist.batch_isend_irecv(operations):
            request.wait()


def _total(sums: Tensor, size: int, group: dist.ProcessGroup | None) -> Tensor:
    """Add up in rank order, so that every process gets the same bytes."""
    parts = [torch.empty_like(sums) for _ in range(size)]
    dist.all_gather(parts, sums.contiguous(), group)
    return torch.stack(parts).sum(dim=0)
