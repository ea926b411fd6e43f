"""The asyncio face of every recipe: the same core, with its waits in threads.

    async with aio.hold(mutex.acquire, timeout_s=5) as grant:
        ...
    leadership = await aio.take(election.campaign)
    await aio.call(leadership.transfer, "c2")

Works with whatever waits as `Mutex.acquire` does: both sides of
`ReadWriteLock`, `Semaphore.acquire`, `Barrier.enter`, `Election.campaign`. What
a task acquires is the task's: it may enter again what it holds, and another
task waits. Reading a handle (`held`, `check`) does no I/O and needs no `await`.

Each wait has a thread of its own, so that however many wait, somebody can release.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from pliska.locks.election import Election, Leadership
from pliska.locks.errors import GrantLostError
from pliska.locks.grant import Grant
from pliska.locks.owner import acting_for

Result = TypeVar("Result")
GrantT_co = TypeVar("GrantT_co", bound=Grant, covariant=True)


class Acquire(Protocol[GrantT_co]):
    """What waits for a grant, such as the bound method `Mutex.acquire`."""

    def __call__(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> GrantT_co:
        """Wait, and return what was granted."""


async def take(acquire: Acquire[GrantT_co], timeout_s: float | None = None) -> GrantT_co:
    """Acquire for the calling task; its caller releases it, with `await aio.call(grant.release)`.

    A cancelled task has left the queue when this returns.

    Raises:
        LockError: What `acquire` raises.
    """
    cancelled = threading.Event()
    waiting = _in_thread(lambda: acquire(timeout_s, cancelled))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        cancelled.set()
        await _settled(waiting)
        if waiting.exception() is None:  # it was granted just before it was called off
            await _settled(_in_thread(waiting.result().release))
        raise


@asynccontextmanager
async def hold(
    acquire: Acquire[GrantT_co], timeout_s: float | None = None
) -> AsyncIterator[GrantT_co]:
    """Acquire, run the block, release.

    When it is lost the block is cancelled and `GrantLostError` raised.

    Raises:
        GrantLostError: It was lost before the block ended.
        LockError: What `acquire` raises.
    """
    grant = await take(acquire, timeout_s)
    try:
        async with _Interruption(grant):
            yield grant
            grant.check()
    finally:
        await _settled(_in_thread(grant.release))


async def lead(election: Election, work: Callable[[Leadership], Awaitable[None]]) -> None:
    """Campaign, do `work` while leading, resign, and campaign again, until this is cancelled.

    When leadership is lost `work` is cancelled, and the next campaign begins
    when it has ended.

    Raises:
        SessionLostError: The session ended: make an election with a new one.
        StoreError: The store could not take the candidacy or the leader record.
    """
    while True:
        try:
            async with hold(election.campaign) as leadership:
                await work(leadership)
        except GrantLostError:
            continue  # with a session that has ended, the next campaign says so


async def call(function: Callable[..., Result], *arguments: object) -> Result:
    """Run anything else of this package that does I/O, such as `grant.release`.

    A cancelled task does not wait for it; it runs to its end all the same.
    """
    return await asyncio.shield(_in_thread(lambda: function(*arguments)))


class _Interruption:
    """Cancels the task inside the block when the grant is lost, as `asyncio.timeout` does."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._is_over = False
        self._has_cancelled = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("this needs a task: run it with asyncio.run")
        self._task = task
        self._cancelling = task.cancelling()
        loop = asyncio.get_running_loop()
        self._grant.on_lost(lambda: _tell(loop, self._cancel))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        self._is_over = True
        if not self._has_cancelled:
            return
        is_ours = self._task.uncancel() <= self._cancelling
        if is_ours and isinstance(error, asyncio.CancelledError):
            self._grant.check()

    def _cancel(self) -> None:
        if not self._is_over:
            self._has_cancelled = True
            self._task.cancel()


def _in_thread(function: Callable[[], Result]) -> "asyncio.Future[Result]":
    owner = asyncio.current_task()
    outcome: concurrent.futures.Future[Result] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            with acting_for(owner):
                result = function()
        except BaseException as error:  # noqa: BLE001 - whoever awaits it gets it
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name="pliska-lock-aio", daemon=True).start()
    return asyncio.wrap_future(outcome)


async def _settled(future: "asyncio.Future[Result]") -> None:
    """Wait for the end of `future` whatever comes; a cancellation counts afterwards."""
    is_cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)
