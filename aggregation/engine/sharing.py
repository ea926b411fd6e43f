"""Kernels on spans of columns, shared out among threads without the interpreter.

A span costs no more than the work in it, so spans can be short, and threads
finish together. Between the passes of one call of a rule helping threads stay
awake: to wake one takes as long as some passes. `blocks` calls this.
"""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pliska.aggregation.engine.compiler import Host, Kernel, compiled
from pliska.aggregation.engine.sharing_kernel import (
    ASLEEP,
    CELL_WORDS,
    WORK_FIELDS,
    sharing_assembly,
)
from pliska.aggregation.engine.threads import over_spans

ARGUMENTS = {
    "rows": "ptr",
    "start": "i64",
    "stop": "i64",
    "out": "ptr",
    "scratch": "ptr",
    "sums": "ptr",
    "given": "ptr",
}
"""What every kernel takes.

rows points to pointers to rows, of which it reads the columns from start to
stop; out to column 0 of a float32 vector; scratch to memory of the thread's
own; sums to float64 of the span's own, which it adds to; given to whatever
else this kernel wants to know.
"""

ROWS, GIVEN = (list(WORK_FIELDS).index(name) for name in ("rows", "given"))

LOOKS = 4000
"""How often a helper looks for more work before it goes to sleep: a millisecond or two."""


@dataclass(frozen=True, slots=True)
class Work:
    """A pass over columns: what threads share (`sharing_kernel.WORK_FIELDS`).

    Attributes:
        kernel: Address of a function of `ARGUMENTS`.
        rows: Pointers to the rows.
        out: Address of the vector, or 0.
        scratch: Address of scratch_bytes for each thread.
        sums: Address of sums_bytes for each span.
        given: What else the kernel wants to know.
        columns: start and stop given.
        step: Columns of a span.
        scratch_bytes: See scratch.
        sums_bytes: See sums.
    """

    kernel: int
    rows: Sequence[int]
    out: int
    scratch: int
    sums: int
    given: Sequence[int]
    columns: slice
    step: int
    scratch_bytes: int
    sums_bytes: int

    def words(self) -> NDArray[np.int64]:
        """Return the fields, the two counters, and after them what they point to."""
        start, stop = self.columns.start, self.columns.stop
        head = [self.kernel, 0, self.out, self.scratch, self.sums, 0, start, stop, self.step]
        head += [self.scratch_bytes, self.sums_bytes, 0, 0]
        words = np.array([*head, *self.given, *self.rows], np.int64)
        given = words.ctypes.data + 8 * len(head)
        words[GIVEN], words[ROWS] = given, given + 8 * len(self.given)
        return words


def share_out(target: Host, work: Work, threads: int) -> None:
    """Run the kernel on all spans, on at most so many threads, the caller's among them."""
    words = work.words()
    address = words.ctypes.data
    if threads == 1:
        _function(target, "share", ("ptr",))(address)
    elif not _team(target, threads - 1).work_on(address):
        share = _function(target, "share", ("ptr",))
        over_spans(lambda *_: share(address), 0, threads, 1)


class _Team:
    """Threads that help whoever comes first."""

    def __init__(self, target: Host, helpers: int) -> None:
        self._offer = _function(target, "offer", ("ptr", "i64", "ptr"))
        self._lead = _function(target, "lead", ("ptr", "i64", "ptr"))
        self._serve = _function(target, "serve", ("ptr", "i64"))
        self._helpers = helpers
        self._cells = np.zeros((helpers, CELL_WORDS), np.int64)
        self._address = self._cells.ctypes.data
        self._pool = ThreadPoolExecutor(helpers, thread_name_prefix="pliska-aggregation")
        self._is_busy = threading.Lock()

    def work_on(self, work: int) -> bool:
        """Do the work together; return False, and do nothing, if the team has other work."""
        if not self._is_busy.acquire(blocking=False):
            return False
        try:
            self._offer(self._address, self._helpers, work)
            try:
                self._wake_helpers()
            finally:  # takes offers back: nobody may look at the work any more after this call
                self._lead(self._address, self._helpers, work)
        finally:
            self._is_busy.release()
        return True

    def _wake_helpers(self) -> None:
        for helper, before in enumerate(self._cells[:, 2].tolist()):
            if before == ASLEEP:
                self._pool.submit(self._help, helper)

    def _help(self, helper: int) -> None:
        """Serve at a cell until there is nothing more to do; meanwhile the cells stay alive."""
        self._serve(self._address + 8 * CELL_WORDS * helper, LOOKS)


@lru_cache(maxsize=4)
def _team(target: Host, helpers: int) -> _Team:
    return _Team(target, helpers)


os.register_at_fork(after_in_child=_team.cache_clear)  # threads do not survive a fork


@lru_cache(maxsize=8)
def _function(target: Host, name: str, arguments: tuple[str, ...]) -> Kernel:
    return compiled(target, name, sharing_assembly(), arguments)
