"""The mean of some of the sorted values, in each coordinate, in one read of the rows.

Mean, median and trimmed mean average a band of ranks; the mean around the
median averages the values nearest to it. Rules call `band_mean` and
`nearest_mean`; the work is done by a compiled kernel where there is one for
these rows, else by networks of elementwise minima and maxima, else by sorting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pliska.aggregation.engine import bands, blocked_networks, gpu, mixtures, sorted_columns
from pliska.aggregation.engine.compiler import host_for
from pliska.aggregation.engine.networks import Selection
from pliska.aggregation.engine.results import RESULTS
from pliska.aggregation.engine.statistics import SQUARE_MIN, Sums, repaired
from pliska.aggregation.rows import Rows

SQUARE_MAX = 1e36
"""Squared length up to which no square of a row leaves the range of float32."""

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
    return _selected_mean(rows, Selection(rows.n, band))


def nearest_mean(rows: Rows, count: int) -> BandMean:
    """Average the `count` values nearest to the median, per coordinate.

    For even n the median is the mean of the two middle values. Of two values
    equally near the smaller one is taken, which depends on values alone: not
    on who sent them. Cost as that of `band_mean`.

    Args:
        rows: Finite, n >= 1.
        count: 1 to n.
    """
    return _selected_mean(rows, Selection(rows.n, range(rows.n), count))


def mixed_band_mean(rows: Rows, matrix: Tensor, band: range) -> BandMean | None:
    """Do what `band_mean` does to `matrix` times the rows, which are never built whole.

    Args:
        rows: Finite, n >= 1.
        matrix: Float64 [m, n].
        band: Of the m values in each coordinate.

    Returns:
        `kept` is of the m mixed rows, `distances` of the n unmixed ones. None
        if there is no kernel for these rows and this matrix, or they are few,
        or squares leave the range of float32.
    """
    target = host_for(rows.tensors)
    selection = Selection(len(matrix), band)
    is_large = rows.n * rows.whole_d >= COMPILED_ELEMENTS_MIN
    if target is None or not is_large or max(rows.n, len(matrix)) > bands.ROWS_MAX:
        return None
    mixture = mixtures.Mixture.of(matrix.numpy())
    lengths = rows.squared_lengths()
    if mixture is None or selection.is_whole or not _fit(lengths, rows.whole_d):
        return None
    vector = RESULTS.vector(rows.d)
    measured, carried = (
        mixtures.select_mean(target, rows.tensors, mixture, selection, columns, vector)
        for columns in (slice(0, rows.measured), slice(rows.measured, rows.d))
    )
    kept = rows.total(torch.from_numpy(measured.kept + carried.kept))
    distances = rows.total(torch.from_numpy(measured.distances))
    return BandMean(vector, kept, distances)


def _fit(lengths: Sequence[tuple[float, float]], d: int) -> bool:
    """Return whether float32 holds the squares of rows of these squared lengths."""
    return all(SQUARE_MIN * d <= sum(length) < SQUARE_MAX for length in lengths)


def read_ahead(rows: Rows, band: range) -> None:
    """Do the work of `band_mean` before the gate, which then need not read the rows again.

    Args:
        rows: Not yet known to be finite. If they are not, no harm is done but
            to the time.
        band: As for `band_mean`, which hands the result out once.
    """
    selection = Selection(rows.n, band)
    if rows.n * rows.whole_d >= COMPILED_ELEMENTS_MIN:
        rows.seen.means[selection] = _made(rows, selection)


def _selected_mean(rows: Rows, selection: Selection) -> BandMean:
    made: BandMean | None = rows.seen.means.pop(selection, None)
    return _made(rows, selection) if made is None else made


def _made(rows: Rows, selection: Selection) -> BandMean:
    vector = _result(rows)
    measured = _sums(rows, selection, slice(0, rows.measured), vector)
    carried = _sums(rows, selection, slice(rows.measured, rows.d), vector)
    sums = torch.stack([measured[0], measured[2] + carried[2], measured[1], carried[1]])
    distances, kept, *lengths = rows.total(sums)
    if rows.seen.lengths is None:
        rows.seen.lengths = torch.stack(lengths, dim=1)
    return BandMean(vector, kept, distances)


def _result(rows: Rows) -> Tensor:
    first = rows.tensors[0]
    if first.device.type == "cpu" and rows.dtype == torch.float32:
        return RESULTS.vector(rows.d)
    return first.new_empty(rows.d, dtype=rows.dtype)


def _sums(rows: Rows, selection: Selection, columns: slice, vector: Tensor) -> Tensor:
    """Write the result for these columns; return what `Sums` holds, float64 [3, n]."""
    tensors = rows.tensors
    if tensors[0].device.type != "cpu":
        on_device = gpu if tensors[0].device.type == "cuda" else sorted_columns
        found: Tensor = on_device.select_mean(tensors, selection, columns, vector)
        return found
    sums = _sums_on_cpu(rows, selection, columns, vector)
    return torch.from_numpy(np.stack([sums.distances, sums.lengths, sums.kept]))


def _sums_on_cpu(rows: Rows, selection: Selection, columns: slice, vector: Tensor) -> Sums:
    tensors = rows.tensors
    if rows.dtype == torch.float64 or rows.n * rows.d < COMPILED_ELEMENTS_MIN:
        return blocked_networks.select_mean(tensors, selection, columns, vector, np.float64)
    target = host_for(tensors)
    if target is not None and rows.n <= bands.ROWS_MAX:
        sums = bands.select_mean(target, tensors, selection, columns, vector)
    else:
        sums = blocked_networks.select_mean(tensors, selection, columns, vector, np.float32)
    return repaired(sums, tensors, vector, columns)
