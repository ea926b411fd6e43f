"""The mean of some of the sorted values, in each coordinate, in one read of the rows.

Mean, median and trimmed mean average a band of ranks; the mean around the
median averages the values nearest to it. The work is done by a compiled kernel
where there is one for these rows; bands of ranks else by networks of
elementwise minima and maxima, or by sorting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from pliska.aggregation.engine import (
    bands,
    blocked_networks,
    gpu,
    many_bands,
    mixtures,
    reports,
    sorted_columns,
    votes,
)
from pliska.aggregation.engine.compiler import Host, host_for
from pliska.aggregation.engine.networks import Nearest, Selection
from pliska.aggregation.engine.results import RESULTS
from pliska.aggregation.engine.statistics import (
    CARRIED,
    DISTANCES,
    KEPT,
    LENGTHS,
    SQUARE_MIN,
    norms,
    repaired,
    squares,
)
from pliska.aggregation.rows import Rows

SQUARE_MAX = 1e36
"""Squared length up to which no square of a row leaves the range of float32."""

MAJORITY = "majority"
"""What was voted on is found under this in `rows.seen.means`."""

COMPILED_ELEMENTS_MIN = 1 << 18
"""Fewer values are done before a kernel is found; their sums are formed in float64 throughout."""


@dataclass(frozen=True, slots=True)
class BandMean:
    """The mean of a band, and how the rows lie to it.

    Attributes:
        vector: [d], in the rows' arithmetic dtype.
        kept: Coordinates in which each row lies within the band, ties included,
            float64 [n].
        distances: Squared distance of each row to `vector`, measured columns
            only, float64 [n]. Both stay on the rows' device, so that nobody has
            to wait for it before they are read.
    """

    vector: Tensor
    kept: Tensor
    distances: Tensor


def band_mean(rows: Rows, band: range) -> BandMean:
    """Average the values whose rank is in `band`, per coordinate.

    Cost O(n log^2 n) comparisons per coordinate; sums are in float64. The
    extremes are left out, never subtracted: the sum of all minus the extremes
    loses everything to one huge value.

    Args:
        rows: Finite, n >= 1.
        band: Ranks (0 is the smallest), not empty, within 0..n.
    """
    selection = Selection(rows.n, band)
    made: BandMean | None = rows.seen.means.pop(selection, None)
    if made is not None:
        return made
    target = target_for(rows, rows.n, many_bands.ROWS_MAX)
    if target is not None:
        return reduced(rows, partial(_compiled, target, rows, selection))
    return reduced(rows, partial(_uncompiled, rows, selection))


def nearest_mean(rows: Rows, count: int) -> BandMean | None:
    """Average the `count` values nearest to the median, per coordinate.

    Of values equally near those of earlier rows are taken; for even n the
    median is the mean of the two middle values.

    Args:
        rows: Finite, n >= 1.
        count: 1 to n.

    Returns:
        `kept` counts exactly `count` rows in each coordinate. None if there is
        no kernel for these rows, or they are few.
    """
    selection = Nearest(rows.n, count)
    made: BandMean | None = rows.seen.means.pop(selection, None)
    target = target_for(rows, rows.n, many_bands.ROWS_MAX)
    if made is not None or target is None:
        return made
    return reduced(rows, partial(_compiled, target, rows, selection))


def mixed_mean(
    rows: Rows, matrix: Tensor, selection: Selection | Nearest, centre: int
) -> BandMean | None:
    """Average some of the values of `matrix` times the rows, which are never built whole.

    Args:
        rows: Finite, n >= 1.
        matrix: Float64 [m, n].
        selection: Of the m values in each coordinate.
        centre: The row about which means of rows are formed, one of ordinary length.

    Returns:
        `kept` is of the m mixed rows, `distances` of the n unmixed ones. None
        if there is no kernel for these rows and this matrix, or they are few,
        or squares leave the range of float32.
    """
    target = target_for(rows, len(matrix), mixtures.ROWS_MAX)
    if target is None or selection.is_whole:
        return None
    mixture = mixtures.Mixture.of(matrix.numpy(), centre)
    if mixture is None or not _fit(rows.squared_lengths(), rows.whole_d):
        return None
    vector = RESULTS.vector(rows.d)
    mix = partial(mixtures.select_mean, target, rows.tensors, mixture, selection)
    measured = mix(slice(0, rows.measured), vector)
    kept = measured.kept
    if rows.measured < rows.d:
        kept = kept + mix(slice(rows.measured, rows.d), vector).kept
    distances = rows.total(torch.from_numpy(measured.distances))
    return BandMean(vector, rows.total(torch.from_numpy(kept)), distances)


def majority_sign(rows: Rows) -> BandMean | None:
    """Vote on the sign of each coordinate; see `SignVote`.

    Args:
        rows: n >= 1; read ahead, not yet known to be finite.

    Returns:
        `kept` counts the coordinates in which each row has the result's sign.
        None if there is no kernel for these rows, or they are few.
    """
    made: BandMean | None = rows.seen.means.pop(MAJORITY, None)
    target = target_for(rows, rows.n, rows.n)
    if made is not None or target is None:
        return made
    return reduced(rows, partial(_voted, target, rows))


def read_signs_ahead(rows: Rows) -> None:
    """Do what `read_ahead` does, for `majority_sign`."""
    made = majority_sign(rows)
    if made is not None:
        rows.seen.means[MAJORITY] = made


def distances_to(rows: Rows, vector: Tensor) -> Tensor:
    """Return the squared distance of each row to `vector` [d], float64 [n], measured columns only.

    Args:
        rows: Finite.
        vector: In the rows' arithmetic dtype.
    """
    columns, target = slice(0, rows.measured), target_for(rows, rows.n, rows.n)
    if vector.device.type != "cpu":
        gaps = (row[columns] - vector[columns] for row in rows.tensors)
        return rows.total(norms(gaps).square())
    if target is None:
        found = [squares(row, columns, vector) for row in rows.tensors]
    else:
        least = SQUARE_MIN * rows.measured
        found = [
            distance if least <= distance < np.inf else squares(row, columns, vector)
            for row, distance in zip(
                rows.tensors,
                reports.distances(target, rows.tensors, columns, vector).tolist(),
                strict=True,
            )
        ]
    return rows.total(torch.tensor(found, dtype=torch.float64))


def read_ahead(rows: Rows, selection: Selection | Nearest) -> None:
    """Do a rule's work before the gate, which then need not read the rows again.

    Args:
        rows: Not yet known to be finite. If they are not, no harm is done but
            to the time.
        selection: As of `band_mean` or `nearest_mean`, which hands the result out once.
    """
    target = target_for(rows, rows.n, many_bands.ROWS_MAX)
    if target is not None:
        rows.seen.means[selection] = reduced(rows, partial(_compiled, target, rows, selection))
    elif isinstance(selection, Selection) and _are_many(rows):
        rows.seen.means[selection] = reduced(rows, partial(_uncompiled, rows, selection))


def target_for(rows: Rows, points: int, rows_max: int = bands.ROWS_MAX) -> Host | None:
    """Return the CPU that has kernels for these rows and so many points, if they are worth it.

    None for few values, for float64, on a GPU, and where nothing can be compiled.

    Args:
        rows: n of them.
        points: That are made of the rows.
        rows_max: How many the kernel takes.
    """
    if not _are_many(rows) or max(rows.n, points) > rows_max:
        return None
    return host_for(rows.tensors)


def _are_many(rows: Rows) -> bool:
    return rows.n * rows.whole_d >= COMPILED_ELEMENTS_MIN


def _fit(lengths: Sequence[tuple[float, float]], d: int) -> bool:
    """Return whether float32 holds the squares of rows of these squared lengths."""
    return all(SQUARE_MIN * d <= sum(length) < SQUARE_MAX for length in lengths)


def reduced(rows: Rows, reduce: Callable[[slice, Tensor], Tensor]) -> BandMean:
    """Put together what a reduction finds out of the measured columns and of the others.

    Args:
        rows: n rows.
        reduce: Given columns and a vector [d], writes the result for these
            columns there and returns `statistics.Sums.stacked` on the rows'
            device.
    """
    vector = _result(rows)
    sums = reduce(slice(0, rows.measured), vector)
    if rows.measured < rows.d:
        carried = reduce(slice(rows.measured, rows.d), vector)
        sums[KEPT] += carried[KEPT]
        sums[CARRIED] = carried[LENGTHS]
    sums = rows.total(sums)
    if rows.seen.lengths is None:
        rows.seen.lengths = sums[LENGTHS :: CARRIED - LENGTHS].T
    return BandMean(vector, sums[KEPT], sums[DISTANCES])


def _result(rows: Rows) -> Tensor:
    first = rows.tensors[0]
    if first.device.type == "cpu" and rows.dtype == torch.float32:
        return RESULTS.vector(rows.d)
    return first.new_empty(rows.d, dtype=rows.dtype)


def _compiled(
    target: Host, rows: Rows, selection: Selection | Nearest, columns: slice, vector: Tensor
) -> Tensor:
    """Write the result for these columns; return `Sums.stacked`."""
    sums = bands.select_mean(target, rows.tensors, selection, columns, vector)
    return repaired(sums, rows.tensors, vector, columns).stacked


def _voted(target: Host, rows: Rows, columns: slice, vector: Tensor) -> Tensor:
    sums = votes.majority(target, rows.tensors, columns, vector)
    return repaired(sums, rows.tensors, vector, columns).stacked


def _uncompiled(rows: Rows, selection: Selection, columns: slice, vector: Tensor) -> Tensor:
    """Do what `_compiled` does where there is nothing to compile with or for."""
    tensors = rows.tensors
    if tensors[0].device.type != "cpu":
        on_device = gpu if tensors[0].device.type == "cuda" else sorted_columns
        found: Tensor = on_device.select_mean(tensors, selection, columns, vector)
        return found
    if rows.dtype == torch.float64 or not _are_many(rows):
        exact = blocked_networks.select_mean(tensors, selection, columns, vector, np.float64)
        return exact.stacked
    sums = blocked_networks.select_mean(tensors, selection, columns, vector, np.float32)
    return repaired(sums, tensors, vector, columns).stacked
