"""Spans of columns, worked on by several threads, with results that do not depend on how many.

Kernels run without the interpreter lock, so ordinary threads use all cores.
The spans have a fixed width and their results come back in column order: sums
over them are the same bytes for any number of threads.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

T = TypeVar("T")
S = TypeVar("S", float, NDArray[np.float64])

SPAN_COLUMNS = 1 << 16
"""Columns of one piece of work: about a millisecond, and a multiple of every tile."""


def over_spans(
    work: Callable[[int, int], T], start: int, stop: int, width: int = SPAN_COLUMNS
) -> list[T]:
    """Return work(first, end) of every span of start..stop, in column order.

    Uses as many threads as torch does (`torch.set_num_threads`), the caller
    among them. Each takes the next span when it is done with one, so a thread
    that gets no core holds nobody up.

    Args:
        work: Called from several threads at once.
        start: First column.
        stop: Column after the last.
        width: Columns of a span.
    """
    firsts = range(start, stop, width)
    waiting = deque(firsts)
    done: dict[int, T] = {}

    def share() -> None:
        while True:
            try:
                first = waiting.popleft()
            except IndexError:
                return
            done[first] = work(first, min(first + width, stop))

    count = min(torch.get_num_threads(), len(firsts)) - 1
    others = [_pool(count).submit(share) for _ in range(count)]
    try:
        share()
    finally:
        waiting.clear()
        for other in others:
            if not other.cancel():
                other.result()
    return [done[first] for first in firsts]


def sum_over_spans(
    work: Callable[[int, int], S], zero: S, start: int, stop: int, width: int = SPAN_COLUMNS
) -> S:
    """Return `zero` plus work(first, end) of every span of start..stop, added in column order.

    Parts are added as soon as those before them are there: how many are kept
    does not grow with the columns.

    Args:
        work: As of `over_spans`, as are the others.
        zero: What there is before the first one.
        start: As there.
        stop: As there.
        width: As there.
    """
    total, next_first = zero, start
    early: dict[int, S] = {}
    adding = threading.Lock()

    def add(first: int, end: int) -> None:
        nonlocal total, next_first
        part = work(first, end)
        with adding:
            early[first] = part
            while next_first in early:
                total = total + early.pop(next_first)
                next_first += width

    over_spans(add, start, stop, width)
    return total


@lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="pliska-aggregation")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
