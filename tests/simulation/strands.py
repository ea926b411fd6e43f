"""Threads of simulated processes, as strands: one runs at a time, and a seed alone decides which.

A strand runs until it waits for a lock, an event, a future or the time; then the
loop goes on, and comes back to it when what it waits for is there. `THREADING`,
`SimulatedExecutor` and `SimulatedClock` take the place of `threading`,
`ThreadPoolExecutor` and the clock where the code under test uses them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import greenlet
from simulation.virtual_loop import CURRENT, Killed, Process, VirtualLoop

_current: list["Strand"] = []


class Strand:
    """What one thread would do."""

    def __init__(self, loop: VirtualLoop, work: Callable[[], None], name: str) -> None:
        self.loop = loop
        self.name = name
        self.is_done = False
        self.process: Process | None = CURRENT.get()
        context = copy_context()
        self._greenlet = greenlet.greenlet(lambda: context.run(self._run, work), parent=loop.hub)
        loop.strands.append(self)

    def start(self, delay_s: float = 0.0) -> None:
        """Begin some time from now, as its process."""
        self.loop.call_later(delay_s, self.resume)

    def resume(self) -> None:
        """Run until it waits or ends. Called by the loop."""
        if self.is_done:
            return
        _current.append(self)
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)  # a thread has none
        try:
            self._greenlet.switch()
        finally:
            asyncio._set_running_loop(running)
            _current.pop()

    def end(self) -> None:
        """Unwind what is left of it after the run: nothing it does has an effect any more."""
        if not self.is_done and self._greenlet:
            _current.append(self)
            try:
                self._greenlet.throw(Killed)
            finally:
                _current.pop()
        self.is_done = True

    def wait(self, is_ready: Callable[[], bool], until: float | None) -> bool:
        """Let the loop go on until something is there or the time has come."""
        if self.loop.is_over:
            raise Killed
        self.loop.pause(self, is_ready, until)
        self.loop.hub.switch()
        if self.loop.is_over:
            raise Killed
        return is_ready()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Killed:
            pass
        finally:
            self.is_done = True


def wait_for(is_ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
    """Wait as the strand that runs now; False when the time passed without it."""
    if is_ready():
        return True
    if not _current:
        raise RuntimeError("a coroutine blocks its event loop")
    strand = _current[-1]
    until = None if timeout_s is None else strand.loop.time() + timeout_s
    return strand.wait(is_ready, until)


def stand_still() -> None:
    """Let the loop go on if a strand runs now, until its process may run again."""
    if _current:
        wait_for(lambda: False, 0.0)


class SimulatedLock:
    """`threading.Lock` and, since no strand takes one twice by mistake unseen, `RLock`."""

    def __init__(self) -> None:
        self._owner: object | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = _current[-1] if _current else _LOOP
        if self._owner is not me:
            if self._owner is not None and not blocking:
                return False
            free = wait_for(lambda: self._owner is None, None if timeout < 0 else timeout)
            if not free:
                return False
            self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> "SimulatedLock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


_LOOP = object()


class SimulatedCondition:
    """`threading.Condition`."""

    def __init__(self, lock: SimulatedLock | None = None) -> None:
        self._lock = lock or SimulatedLock()
        self._waiting: list[list[bool]] = []

    def __enter__(self) -> "SimulatedCondition":
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def acquire(self) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._waiting.append(told)
        self._lock.release()
        try:
            return wait_for(lambda: told[0], timeout)
        finally:
            self._lock.acquire()
            if told in self._waiting:
                self._waiting.remove(told)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        loop = _current[-1].loop
        until = None if timeout is None else loop.time() + timeout
        while not (found := predicate()):
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        for told in self._waiting[:n]:
            told[0] = True
        del self._waiting[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class SimulatedEvent:
    """`threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return wait_for(self.is_set, timeout)


class SimulatedThread:
    """`threading.Thread`."""

    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        name: str = "thread",
        daemon: bool = False,
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._work = lambda: target(*args)
        self._strand: Strand | None = None

    def start(self) -> None:
        self._strand = Strand(loop_here(), self._work, self.name)
        self._strand.thread = self
        self._strand.start()

    def is_alive(self) -> bool:
        return self._strand is not None and not self._strand.is_done

    def join(self, timeout: float | None = None) -> None:
        wait_for(lambda: not self.is_alive(), timeout)


def loop_here() -> VirtualLoop:
    """Return the loop of the process whose step this is."""
    process = CURRENT.get()
    if process is None:
        raise RuntimeError("only processes have threads")
    return process.loop


def _current_thread() -> object:
    return getattr(_current[-1], "thread", _current[-1]) if _current else _LOOP


THREADING = SimpleNamespace(
    Lock=SimulatedLock,
    RLock=SimulatedLock,
    Condition=SimulatedCondition,
    Event=SimulatedEvent,
    Thread=SimulatedThread,
    current_thread=_current_thread,
)


class SimulatedExecutor:
    """`ThreadPoolExecutor`."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "pool") -> None:
        self._name = thread_name_prefix
        self._most = max_workers
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = 0

    def submit(self, work: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        self._queue.append((future, lambda: work(*args, **options)))
        if self._running < self._most:
            self._running += 1
            loop = loop_here()
            Strand(loop, self._work, self._name).start(loop.thread_delay_s())
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for future, _ in self._queue:
                future.cancel()
            self._queue.clear()
        if wait:
            wait_for(lambda: not self._running)

    def _work(self) -> None:
        try:
            while self._queue:
                future, work = self._queue.popleft()
                if future.set_running_or_notify_cancel():
                    fulfil(future, work)
        finally:
            self._running -= 1


def fulfil(future: "Future[Any]", work: Callable[[], Any]) -> None:
    """Do the work and put what comes out into the future."""
    try:
        result = work()
    except Killed:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a thread would hand over
        future.set_exception(error)
    else:
        future.set_result(result)


_real_result = Future.result


def patient_result(future: "Future[Any]", timeout: float | None = None) -> Any:
    """`Future.result`, which waits as a strand where one asks."""
    if _current and not future.done():
        wait_for(future.done, timeout)
    return _real_result(future, 0 if _current else timeout)


class SimulatedClock:
    """A `locks.Clock` that shows the loop's time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_s(self) -> float:
        return self._loop.time()

    def wait(self, condition: SimulatedCondition, until_s: float | None) -> None:
        condition.wait(None if until_s is None else max(0.0, until_s - self._loop.time()))
