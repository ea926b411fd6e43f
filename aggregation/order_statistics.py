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

from pliska.aggregation.engine import bands, blocked_networks, gpu, sorted_columns
from pliska.aggregation.engine.compiler import host_for
from pliska.aggregation.engine.networks import Selection
from pliska.aggregation.engine.results import RESULTS
from pliska.aggregation.engine.statistics import Sums, repaired
from pliska.aggregation.rows import Rows

COMPILED_ELEMENTS_MIN = 1 << 18
"""Fewer values are done before a kernel is found; their sums are formed in float64 throughout."""


@dataclass(frozen=True, slots=True)
class BandMean:
    """The mean of a band, and how the rows lie to it.

    Attributes:
        vector: [d], in the rows' arithmetic dtype.
        kept: Coordinates in which each row lies within the band, ties included.
        distances: Squared distance of each row to `vector`, measured columns only.
    """

    vector: Tensor
    kept: Sequence[float]
    distances: Sequence[float]


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
    sums = torch.from_numpy(
        np.stack(
            [
                measured.distances,
                measured.kept + carried.kept,
                measured.lengths,
                carried.lengths,
            ]
        )
    )
    distances, kept, *lengths = rows.total(sums).tolist()
    rows.seen.lengths = list(zip(*lengths, strict=True))
    return BandMean(vector, kept, distances)


def _result(rows: Rows) -> Tensor:
    first = rows.tensors[0]
    if first.device.type == "cpu" and rows.dtype == torch.float32:
        return RESULTS.vector(rows.d)
    return first.new_empty(rows.d, dtype=rows.dtype)


def _sums(rows: Rows, selection: Selection, columns: slice, vector: Tensor) -> Sums:
    """Write the result for these columns; return the sums over them."""
    tensors = rows.tensors
    if tensors[0].device.type != "cpu":
        on_device = gpu if tensors[0].device.type == "cuda" else sorted_columns
        found = on_device.select_mean(tensors, selection, columns, vector)
        return Sums(*found.cpu().numpy())
    if rows.dtype == torch.float64 or rows.n * rows.d < COMPILED_ELEMENTS_MIN:
        return blocked_networks.select_mean(tensors, selection, columns, vector, np.float64)
    target = host_for(tensors)
    if target is not None and rows.n <= bands.ROWS_MAX:
        sums = bands.select_mean(target, tensors, selection, columns, vector)
    else:
        sums = blocked_networks.select_mean(tensors, selection, columns, vector, np.float32)
    return repaired(sums, tensors, vector, columns)
