"""Inner products of rows that are still arriving.

Each row is multiplied with the others as its columns come in, so that after
the last of them only one block is left to do. Every product is formed when the
later of its two rows has the columns, block after block: the sums are the same
bytes for any order of arrival. `measured_buffer` calls this.
"""

import threading
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pliska.aggregation.engine import grams
from pliska.aggregation.engine.compiler import Host, host_for
from pliska.aggregation.engine.threads import SPAN_COLUMNS


class RunningGram:
    """Products of n rows in memory that fills up. May be used from several threads.

    Multiplying costs a read of all rows that are there for every row that
    arrives: more than one pass over all at the end, but while others wait for
    the network anyhow.

    Args:
        rows: n tensors [d] of one dtype on the CPU, which stay where they are.
        centre: Subtracted from each, a tensor like them; None for nothing. The
            nearer it is to the rows, the less is measured again at the end.
    """

    def __init__(self, rows: Sequence[Tensor], centre: Tensor | None = None) -> None:
        n = len(rows)
        self._rows = rows
        self._centre = centre
        self._d = len(rows[0])
        self._lock = threading.Lock()
        self._columns = [0] * n
        self._gram = np.zeros((n, n))
        self._lengths = np.zeros(n)

    def extend(self, row: int, stop: int) -> None:
        """Take notice that the columns of `row` before `stop` are in place and final.

        Without a kernel for this CPU nothing is multiplied ahead of time.

        Args:
            row: Which.
            stop: Not less than in the call before.
        """
        target = host_for(self._rows)
        if target is None:
            return
        with self._lock:
            start = self._columns[row]
            end = stop if stop == self._d else stop // SPAN_COLUMNS * SPAN_COLUMNS
            if end <= start:
                return
            # Where another row ends, there are fewer to multiply with from there on.
            ends = sorted({end, *(each for each in self._columns if start < each < end)})
            for first, last in pairwise([start, *ends]):
                self._multiply(target, row, slice(first, last))
            self._columns[row] = end

    def _multiply(self, target: Host, row: int, columns: slice) -> None:
        """Add the products with all rows that have these columns."""
        peers = [i for i, there in enumerate(self._columns) if there >= columns.stop]
        among = [self._rows[i] for i in (row, *peers)]
        for found in grams.span_products(target, among, 1, columns, self._centre):
            self._gram[row, peers] += found.gram[0, 1:]
            self._gram[peers, row] += found.gram[0, 1:]
            self._gram[row, row] += found.gram[0, 0]
            self._lengths[row] += found.lengths[0]

    def forget(self, row: int) -> None:
        """Drop all products of `row`, whose memory is to be used again."""
        with self._lock:
            self._columns[row] = 0
            self._gram[row, :] = self._gram[:, row] = self._lengths[row] = 0.0

    def among(self, rows: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return products [k, k] and squared lengths [k] of complete rows; None if one is not."""
        with self._lock:
            if any(self._columns[row] < self._d for row in rows):
                return None
            places = list(rows)
            return self._gram[np.ix_(places, places)], self._lengths[places]
