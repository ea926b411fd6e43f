"""An event loop in which time is a number and chance is a seed.

It runs the coroutines of several simulated processes, one step of one process
at a time; which process goes next is drawn from the seed. When nobody can go
on, time jumps to the next timer. Work for threads is done in line, some drawn
time later. So a run depends on its seed alone and can be played again.

A process may be killed or stopped between any two steps, which is between any
two awaits of any of its tasks: a killed one never runs again, not even its
`finally` blocks; a stopped one wakes later without having noticed.
"""

import asyncio
import concurrent.futures
import contextlib
import gc
import heapq
import itertools
import logging
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from random import Random
from typing import Any

import greenlet

THREAD_S_MAX = 0.004
"""Longest time until a thread begins its work, unless the run draws another."""
WAITS_MAX = 20
"""How often a dead process's coroutine may wait for something as it is ended."""
STEP_S = 1e-6
"""What one step takes: who looks at the clock again finds that it has moved."""


class Killed(BaseException):
    """Ends what a process does in line at the moment that it is killed."""


class StuckError(Exception):
    """Nothing is left that could ever happen: the run has a deadlock."""


class Process:
    """One simulated process: what is started in its context dies and stops with it."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.loop = loop
        self.name = name
        self.is_dead = False
        self.stopped_until = 0.0
        self._context = copy_context()
        self._context.run(CURRENT.set, self)

    def start(self, coroutine: Any) -> "asyncio.Task[Any]":
        """Run a coroutine as part of this process."""
        return self.loop.create_task(coroutine, context=self._context.copy())

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.is_dead = True
        if CURRENT.get() is self:
            raise Killed

    def stop(self, seconds: float) -> None:
        """Stop it as SIGSTOP does, and let it go on later."""
        self.stopped_until = max(self.stopped_until, self.loop.time() + seconds)

    def can_run(self) -> bool:
        """Whether it may take a step now."""
        return self.stopped_until <= self.loop.time()


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)
"""The process whose step this is; None: the simulation itself."""

_Step = asyncio.Handle


class _Task(asyncio.Task[Any]):
    """A task whose place in a set depends on no memory address."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._number = next(options["loop"].numbers)
        super().__init__(*arguments, **options)
        self._log_destroy_pending = False

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module."""

    def __init__(self, lots: Random) -> None:
        super().__init__()
        self.lots = lots
        self.steps = 0
        self.before_step: Callable[[Process], None] = lambda _process: None
        self.hub = greenlet.getcurrent()
        self.thread_s_max = THREAD_S_MAX
        self.numbers = itertools.count()
        self.is_over = False
        self.strands: list[Any] = []
        self._paused: list[tuple[_Step, Callable[[], bool], float | None, Process | None]] = []
        self._now = 0.0
        self._ready: deque[_Step]
        self._scheduled: list[asyncio.TimerHandle]
        self._waiting: dict[Process | None, deque[_Step]] = {None: deque()}
        self._tasks: list[_Task] = []  # kept: nothing may run when a dead one's memory is freed
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Seconds since the run began."""
        return self._now

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> _Task:
        task = _Task(coroutine, loop=loop, **options)
        self._tasks.append(task)
        return task

    def thread_delay_s(self) -> float:
        """Draw how long it takes until a thread begins."""
        return self.lots.uniform(0.0, self.thread_s_max)

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Do the work in a strand, as far as its process lives to do it."""
        future = self.create_future()

        def work() -> None:
            outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
            strands.fulfil(outcome, lambda: func(*args))
            if not future.done():
                error = outcome.exception()
                self.call_soon_threadsafe(
                    *((_fail, future, error) if error else (_succeed, future, outcome.result()))
                )

        strands.Strand(self, work, "worker").start(self.thread_delay_s())
        return future

    def pause(self, strand: Any, is_ready: Callable[[], bool], until: float | None) -> None:
        """Resume a strand when something is there or the time has come."""
        step = asyncio.Handle(strand.resume, (), self)
        self._paused.append((step, is_ready, until, strand.process))

    def _run_once(self) -> None:
        """Let one process take one step, after as much time as that needs."""
        process = self._next_process()
        handle = self._waiting[process].popleft()
        if handle.cancelled():
            return
        self.steps += 1
        self._now += STEP_S
        if process is not None:
            self.before_step(process)
            if process.is_dead or not process.can_run():
                self._waiting[process].appendleft(handle)
                return
        with contextlib.suppress(Killed):
            handle._run()

    def _next_process(self) -> Process | None:
        while True:
            self._sort_ready()
            able = [
                process
                for process, steps in self._waiting.items()
                if steps and (process is None or (not process.is_dead and process.can_run()))
            ]
            if able:
                return self.lots.choice(able)
            self._pass_time()

    def _sort_ready(self) -> None:
        paused, self._paused = self._paused, []
        for step, is_ready, until, process in paused:
            if process is not None and process.is_dead:
                continue
            if is_ready() or (until is not None and until <= self._now):
                self._waiting.setdefault(process, deque()).append(step)
            else:
                self._paused.append((step, is_ready, until, process))
        while self._scheduled and self._scheduled[0].when() <= self._now:
            self._ready.append(self._pop_timer())
        while self._ready:
            handle = self._ready.popleft()
            process = handle._context.get(CURRENT)
            self._waiting.setdefault(process, deque()).append(handle)

    def _pop_timer(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._scheduled)
        timer._scheduled = False
        return timer

    def _pass_time(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            self._pop_timer()
        moments = [
            process.stopped_until
            for process, steps in self._waiting.items()
            if steps and process is not None and not process.is_dead
        ]
        moments += [until for _, _, until, _ in self._paused if until is not None]
        if self._scheduled:
            moments.append(self._scheduled[0].when())
        if not moments:
            raise StuckError(f"nothing is left to happen at {self._now:.3f} s")
        self._now = max(self._now, min(moments))

    def _write_to_self(self) -> None:
        """There is no selector to wake: everything happens in one thread."""

    def _process_events(self, event_list: Any) -> None:
        """There are no files to wait for."""

    def finish(self) -> None:
        """End what is left of strands and tasks once the run is over."""
        self.is_over = True
        with quiet_burial():
            for strand in self.strands:
                strand.end()
            # Before the collector comes across them, which ends a coroutine while it takes apart
            # what that still uses: the interpreter has crashed over that.
            _refuse_loops()
            for task in self._tasks:
                _end(task)
            kept = (self.strands, self._paused, self._waiting, self._scheduled, self._tasks)
            for each in kept:
                each.clear()
            self.close()

    def _check_closed(self) -> None:
        """Let a dead process's last words go nowhere rather than raise."""


@contextlib.contextmanager
def quiet_burial() -> Iterator[None]:
    """Free what dead processes held; what their `finally` blocks try then is not heard."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
    factory = logging.getLogRecordFactory()
    logging.setLogRecordFactory(_in_words)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            _refuse_loops()
            while gc.collect():  # what was buried may have left something to bury
                pass
    finally:
        asyncio._set_running_loop(None)
        logging.setLogRecordFactory(factory)
        sys.unraisablehook = hook


def _refuse_loops() -> None:
    """Have `finally` blocks find a loop that does nothing.

    Else they would get a real one, and leave tasks there that nobody runs.
    """
    asyncio._set_running_loop(asyncio.AbstractEventLoop())


def _end(task: _Task) -> None:
    """Have a dead process's coroutine leave its blocks, whatever those try."""
    coroutine: Any = task.get_coro()
    for _ in range(WAITS_MAX):
        try:
            coroutine.close()
        except Exception:  # noqa: BLE001, S112 - also one that waits for something in the end
            continue
        return


def _in_words(*arguments: Any, **options: Any) -> logging.LogRecord:
    """Make a record that holds no error, whose traceback would keep frames of the dead."""
    record = logging.LogRecord(*arguments, **options)
    record.msg, record.args = record.getMessage(), ()
    if record.exc_info:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
    return record


def _succeed(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


from simulation import strands  # noqa: E402 - strands run on the loop, and the loop runs strands
