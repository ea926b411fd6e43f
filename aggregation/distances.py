"""Squared distances between rows, right even where rows differ by far less than their length.

The Gram form |x|^2 + |y|^2 - 2xy cancels when all rows share a large offset,
and then a neighbour looks farther away than it is, or a row not nearest to
itself. So the rows are centred on one of them first, products are accumulated
in float64, and rows whose distances still cancel are measured again among
themselves, centred on one of their own.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import fixed_point, gpu, grams, reports, twins
from pliska.aggregation.engine.blocks import LANES
from pliska.aggregation.engine.compiler import Host, host_for
from pliska.aggregation.engine.statistics import SQUARE_MIN, squared_length, squared_lengths
from pliska.aggregation.rows import Rows

CANCELLATION = 1e-2
"""A squared distance below this share of the two squared lengths is measured again."""

COMPILED_ELEMENTS_MIN = 1 << 20
"""Fewer values are multiplied in float64 throughout, which costs a few milliseconds at most."""

BLOCK_VALUES = 1 << 16
"""Of n x n numbers, so many are worked on together: those of many rows are large."""

SAMPLE_SPANS = 4
SAMPLE_VALUES = 1 << 14
"""Values looked at to choose a centre, from so many places of each row. Few enough that torch
does not share them out among its threads, which wait for each other on a busy machine."""


def squared_distances(rows: Rows) -> Tensor:
    """Return the squared Euclidean distances between all rows over the measured columns.

    Returns:
        float64 [n, n] on the CPU: symmetric, exactly zero on the diagonal.
        From float32 products, if `rows` are large, it is right to about 1e-6
        of each distance.
    """
    return distances_within(rows, centred_gram(rows))


def centred_gram(rows: Rows) -> Tensor:
    """Return the inner products of all rows less a common centre, over the measured columns.

    Returns:
        float64 [n, n] on the CPU. The centre is one of the rows, unless they
        were measured while they arrived.
    """
    if rows.grid is not None:
        return fixed_point.scaled(_products_on_grid(rows, rows.grid), rows.grid)
    read_ahead(rows)
    if rows.seen.gram is None:
        rows.seen.gram = _exact_gram(rows, middle_row(_sampled_lengths(rows)))
    return rows.seen.gram


def read_ahead(rows: Rows) -> None:
    """Do most of the work of `centred_gram` before the gate, which then need not read the rows.

    Args:
        rows: Not yet known to be finite. If they are not, or too few for a
            kernel, nothing is kept but the lengths.
    """
    is_large = rows.n * rows.whole_d >= COMPILED_ELEMENTS_MIN
    if rows.grid is not None or not is_large or rows.seen.gram is not None:
        return
    columns = slice(0, rows.measured)
    target = host_for(rows.tensors)
    if gpu.has_kernels(rows.tensors):
        middle = middle_row(_sampled_lengths(rows))
        found = gpu.products(rows.tensors, columns, middle).cpu()
        products, lengths = found[:-1], found[-1]
    elif target is not None:
        products, lengths = _products(target, rows)
    else:
        return
    if rows.seen.lengths is None:
        rows.seen.lengths = rows.total(_lengths(rows, lengths.tolist()))
    gram = rows.total(products)
    if is_exact(gram, rows):
        rows.seen.gram = gram


def distances_within(rows: Rows, gram: Tensor) -> Tensor:
    """Return what `squared_distances` does, given the rows' centred Gram matrix.

    The distances of a row that is the centre cannot cancel, so every further
    measurement is of fewer rows.
    """
    if rows.grid is not None:
        return fixed_point.distances_of(_products_on_grid(rows, rows.grid), rows.grid)
    products = gram.numpy()
    lengths = products.diagonal()
    distances, is_close = np.empty_like(products), np.empty(products.shape, bool)
    for some in row_blocks(rows.n):
        sums = lengths[some, None] + lengths
        distances[some] = sums - (products[some] + products.T[some])
        is_close[some] = distances[some] < CANCELLATION * sums
    originals = rows.seen.originals
    is_same = np.eye(rows.n, dtype=bool) if not originals else np.equal.outer(originals, originals)
    for group in _connected(is_close & ~is_same):
        alone = rows.with_tensors(tuple(rows.tensors[i] for i in group))
        distances[np.ix_(group, group)] = squared_distances(alone).numpy()
    np.maximum(distances, 0.0, out=distances)
    distances[is_same] = 0.0
    return torch.from_numpy(distances)


def row_blocks(n: int) -> Iterator[slice]:
    """Cut the rows of an n x n matrix into blocks, for which steps in between are small."""
    step = max(1, BLOCK_VALUES // n)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def distances_to_combination(distances: Tensor, weights: Sequence[float]) -> list[float]:
    """Return each row's squared distance to the sum of weights[i] * row i.

    Follows from the distances between rows: for weights w that sum to 1 it is
    (D w)_i - w'Dw / 2.
    """
    weight = torch.tensor(weights, dtype=torch.float64)
    spread = distances @ weight
    to_combination: list[float] = (spread - weight @ spread / 2).clamp(min=0).tolist()
    return to_combination


def _products(target: Host, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return the inner products less a centre, and the squared lengths; of copies only once."""
    columns, sampled = slice(0, rows.measured), _sampled_lengths(rows)
    middle = rows.tensors[middle_row(sampled)]
    copied = twins.originals(rows.tensors, columns, sampled)
    apart = sorted(set(copied))
    distinct = [rows.tensors[i] for i in apart]
    found = grams.products(target, distinct, len(distinct), columns, middle)
    products, lengths = found.gram, found.lengths
    if len(apart) < rows.n:
        places = [apart.index(original) for original in copied]
        products, lengths = products[np.ix_(places, places)], lengths[places]
        if rows.shard is None:
            rows.seen.originals = copied
    return torch.from_numpy(products), torch.from_numpy(lengths)


def _products_on_grid(rows: Rows, grid: float) -> list[list[int]]:
    if rows.seen.products is None:
        columns = slice(0, rows.measured)
        rows.seen.products = fixed_point.exact_products(rows.tensors, grid, columns)
    return rows.seen.products


def is_exact(gram: Tensor, rows: Rows) -> bool:
    """Return whether float32 could hold the squares of the rows less the centre.

    Rows without a square are right if they are the centre, that is, all equal.
    """
    products = gram.numpy()
    if not np.isfinite(products).all():
        return False
    least = SQUARE_MIN * rows.whole_d
    first, *others = np.flatnonzero(products.diagonal() < least).tolist() or [0]
    originals = rows.seen.originals or range(rows.n)
    unknown = [i for i in others if originals[i] != originals[first]]
    pairs = [(rows.tensors[i], rows.tensors[first]) for i in unknown]
    alike = twins.are_equal(pairs, slice(0, rows.measured))
    if rows.shard is None:
        return all(alike)
    differing = rows.total(torch.tensor([float(alike.count(False))], dtype=torch.float64))
    return not differing.item()


def _lengths(rows: Rows, measured: Sequence[float]) -> Tensor:
    """Complete the squared lengths that came with the products, to [n, 2]."""
    columns, rest = slice(0, rows.measured), slice(rows.measured, rows.d)
    least = SQUARE_MIN * rows.measured
    lengths = np.zeros((rows.n, 2))
    lengths[:, 0] = [
        length if least <= length < np.inf else squared_length(row, columns)
        for row, length in zip(rows.tensors, measured, strict=True)
    ]
    if rows.measured < rows.d:
        lengths[:, 1] = squared_lengths(rows.tensors, rest).cpu()
    return torch.from_numpy(lengths)


def _exact_gram(rows: Rows, centre: int) -> Tensor:
    gram = torch.zeros((rows.n, rows.n), dtype=torch.float64, device=rows.tensors[0].device)
    for columns in rows.spans(rows.measured):
        block = rows.block(columns).to(torch.float64)
        block -= block[centre].clone()
        gram += block @ block.T
    return rows.total(gram.cpu())


def middle_row(lengths: Sequence[float]) -> int:
    """Return the row of median length, which f < n/2 liars cannot make a huge one."""
    return sorted(range(len(lengths)), key=lambda i: (lengths[i], i))[len(lengths) // 2]


def _sampled_lengths(rows: Rows) -> list[float]:
    """Return each row's squared length over some of the columns; infinite if it is not finite.

    Enough to choose a centre by: whatever the centre, the distances come out
    right, only sooner or later. Copies have the same.
    """
    width = max(1, min(SAMPLE_VALUES // (SAMPLE_SPANS * rows.n), rows.measured))
    width = max(width // LANES * LANES, 1)
    step = max(width, rows.measured // SAMPLE_SPANS)
    spans = [slice(start, start + width) for start in range(0, rows.measured - width + 1, step)]
    target = host_for(rows.tensors)
    if not spans:
        sampled = torch.zeros(rows.n, dtype=torch.float64)
    elif target is not None:
        sampled = torch.from_numpy(reports.lengths_within(target, rows.tensors, spans))
    else:
        looked_at = [torch.cat([row[columns] for columns in spans]) for row in rows.tensors]
        sampled = torch.stack(looked_at).to(torch.float64).square().sum(dim=1)
    lengths: list[float] = rows.total(sampled).cpu().tolist()
    return [length if math.isfinite(length) else math.inf for length in lengths]


def _connected(linked: NDArray[np.bool_]) -> list[list[int]]:
    """Return the groups of at least two rows that links connect, each in row order.

    Args:
        linked: bool [n, n], symmetric; no row is linked to itself.
    """
    groups = []
    unseen = set(np.flatnonzero(linked.any(axis=1)).tolist())
    while unseen:
        group, reached = set(), {min(unseen)}
        while reached:
            row = reached.pop()
            group.add(row)
            reached |= set(np.flatnonzero(linked[row]).tolist()) - group
        unseen -= group
        groups.append(sorted(group))
    return groups
