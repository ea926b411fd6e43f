"""Means and medians by voting mass, by the compiled kernel. `weighted_band` asks here first."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import mass_kernel
from pliska.aggregation.engine.blocks import LANES, Needs, blank_columns, over_blocks
from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.report_kernel import FIGURES, Figure
from pliska.aggregation.engine.sharing import ARGUMENTS
from pliska.aggregation.engine.statistics import Sums
from pliska.aggregation.engine.tile_sort import tiling

ROWS_MAX = 512
"""The time goes with the square of the rows; sorting with indices is as quick for some more."""


def trimmed_mean(
    target: Host,
    rows: Sequence[Tensor],
    masses: Sequence[float],
    limits: tuple[float, float],
    columns: slice,
    out: Tensor,
) -> Sums:
    """Write the mean of what lies between two limits of mass in each column to `out`.

    Args:
        target: The CPU, from `compiler.host_for(rows)`.
        rows: n finite tensors [d], at most `ROWS_MAX`.
        masses: Positive, one per row.
        limits: Mass below which and above which values are cut off.
        columns: Which; start and stop given.
        out: float32 [d], contiguous; only `columns` are written.

    Returns:
        Sums over `columns`; `kept` is the mass of each row between the limits.
    """
    ends = np.cumsum(masses)
    begins = np.append(0.0, ends[:-1])
    of_equals = (np.minimum(ends, limits[1]) - np.maximum(begins, limits[0])).clip(min=0)
    work = _Work(_trimmed_kernel(target, len(rows), rows[0].dtype), masses, limits)
    return work.sums(target, rows, columns, out, of_equals)


def median(
    target: Host,
    rows: Sequence[Tensor],
    masses: Sequence[float],
    limits: tuple[float, float],
    columns: slice,
    out: Tensor,
) -> Sums:
    """Write the mean of the two values at half of the mass in each column to `out`.

    Args:
        target: As of `trimmed_mean`.
        rows: As there.
        masses: As there.
        limits: Half of the mass, less and more what sums of masses may err.
        columns: As there.
        out: As there.

    Returns:
        Sums over `columns`; `kept` counts the rows from the one value to the other.
    """
    work = _Work(_median_kernel(target, len(rows), rows[0].dtype), masses, limits)
    return work.sums(target, rows, columns, out, np.ones(len(rows)))


class _Work:
    """A kernel and the numbers it is given beside the rows."""

    def __init__(
        self, kernel: Kernel, masses: Sequence[float], limits: tuple[float, float]
    ) -> None:
        self._kernel = kernel
        self._masses = np.zeros(mass_kernel.rows_padded(len(masses)))
        self._masses[: len(masses)] = masses
        self._limits = np.array(limits)

    def sums(
        self,
        target: Host,
        rows: Sequence[Tensor],
        columns: slice,
        out: Tensor,
        of_equals: NDArray[np.float64],
    ) -> Sums:
        """Run over the columns; of_equals [n] is what counts as kept where all are equal."""
        n = len(rows)
        given = self._masses.ctypes.data, self._limits.ctypes.data
        floats = mass_kernel.scratch_floats(n, tiling(target))
        needs = Needs((FIGURES, n, LANES), floats, given=given)
        total = over_blocks(target, self._kernel, rows, columns, needs, out).sum(axis=2)
        total[Figure.KEPT] -= blank_columns(columns) * of_equals
        return Sums(*total)


@lru_cache(maxsize=64)
def _trimmed_kernel(target: Host, n: int, dtype: torch.dtype) -> Kernel:
    function = mass_kernel.trimmed_function("trimmed", n, target.elements[dtype], tiling(target))
    return compiled(target, "trimmed", function.text(), tuple(ARGUMENTS.values()))


@lru_cache(maxsize=64)
def _median_kernel(target: Host, n: int, dtype: torch.dtype) -> Kernel:
    function = mass_kernel.median_function("median", n, target.elements[dtype], tiling(target))
    return compiled(target, "median", function.text(), tuple(ARGUMENTS.values()))
