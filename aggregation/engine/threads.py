"""Spans of columns, worked on by several threads, with results that do not depend on how many.

Kernels run without the interpreter lock, so ordinary threads use all cores.
The spans have a fixed width and their results come back in column order: sums
over them are the same bytes for any number of threads.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

T = TypeVar("T")

SPAN_COLUMNS = 1 << 16
"""Columns of one piece of work: about a millisecond, and a multiple of every tile."""


def over_spans(
    work: Callable[[int, int], T], start: int, stop: int, width: int = SPAN_COLUMNS
) -> list[T]:
    """Return work(first, end) of every span of start..stop, in column order.

    Uses as many threads as torch does (`torch.set_num_threads`); a single span
    is worked on by the caller.

    Args:
        work: Called from several threads at once.
        start: First column.
        stop: Column after the last.
        width: Columns of a span.
    """
    firsts = range(start, stop, width)
    ends = [min(first + width, stop) for first in firsts]
    count = min(torch.get_num_threads(), len(firsts))
    if count < 2:
        return [work(first, end) for first, end in zip(firsts, ends, strict=True)]
    return list(_pool(count).map(work, firsts, ends))


@lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="pliska-aggregation")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
