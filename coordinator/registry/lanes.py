"""Working on several tensors at once: reading, hashing and writing all release the interpreter.

Not a pool that is kept: threads are made for one version and end with it.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LANES_MAX = 8
"""More threads than that wait for memory and disks."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def in_lanes(work: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """Apply `work` to each item, in a thread for each processor; return the results in order.

    The threads are named after the caller's. The first error is raised when what has
    begun is done; the rest is not begun.
    """
    lanes = min(LANES_MAX, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(lanes, threading.current_thread().name) as pool:
        return list(pool.map(work, items))
