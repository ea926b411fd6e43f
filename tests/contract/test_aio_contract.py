"""What the asyncio face adds to the recipes, on every store."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    AcquireTimeoutError,
    Backend,
    Barrier,
    Election,
    GrantLostError,
    Leadership,
    Mutex,
    ReadWriteLock,
    Semaphore,
    Session,
    SessionLostError,
    aio,
    candidates,
)

OpenSession = Callable[..., Session]
CONTENDERS = "locks/m/contenders"


@pytest.fixture
def mutex(open_session: OpenSession) -> Mutex:
    return Mutex(open_session(), "m")


@pytest.fixture
def rival(open_session: OpenSession) -> Mutex:
    return Mutex(open_session(), "m")


async def wait_for_contenders(backend: Backend, count: int) -> None:
    async with asyncio.timeout(20):
        while contenders(backend) != count:  # noqa: ASYNC110 - the store has no event of ours
            await asyncio.sleep(0.005)


def contenders(backend: Backend, directory: str = CONTENDERS) -> int:
    return len(backend.list(directory).records)


async def test_tasks_exclude_each_other_and_are_served_in_order(
    mutex: Mutex, backend: Backend
) -> None:
    order: list[int] = []

    async def work(number: int) -> None:
        async with aio.hold(mutex.acquire, timeout_s=30) as grant:
            order.append(number)
            await asyncio.sleep(0)
            assert grant.held

    async with asyncio.TaskGroup() as group, aio.hold(mutex.acquire):
        for number in range(5):
            group.create_task(work(number))
            await wait_for_contenders(backend, number + 2)
    assert order == list(range(5))
    assert contenders(backend) == 0


async def test_a_task_may_enter_again_what_it_holds(mutex: Mutex, rival: Mutex) -> None:
    async with aio.hold(mutex.acquire) as outer:
        async with aio.hold(mutex.acquire, timeout_s=5) as inner:
            assert inner.token == outer.token
        assert outer.held
        assert await aio.call(rival.try_acquire) is None
        with pytest.raises(AcquireTimeoutError):
            await asyncio.create_task(aio.take(mutex.acquire, timeout_s=0.1))
    assert await aio.call(rival.try_acquire) is not None


async def test_a_cancelled_task_has_left_the_queue(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    async with aio.hold(mutex.acquire):
        waiting = asyncio.create_task(aio.take(rival.acquire))
        await wait_for_contenders(backend, 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert contenders(backend) == 1
    async with aio.hold(rival.acquire, timeout_s=10) as grant:
        assert grant.held


async def test_cancelling_again_and_again_does_not_keep_it_from_leaving(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    async with aio.hold(mutex.acquire):
        waiting = asyncio.create_task(aio.take(rival.acquire))
        await wait_for_contenders(backend, 2)
        while not waiting.done():
            waiting.cancel()
            await asyncio.sleep(0.01)
        assert waiting.cancelled()
        assert contenders(backend) == 1


async def test_cancelling_at_any_moment_leaves_nothing_behind(
    mutex: Mutex, backend: Backend
) -> None:
    async def work() -> None:
        async with aio.hold(mutex.acquire):
            await asyncio.sleep(0.005)

    for delay_ms in range(0, 24, 3):
        task = asyncio.create_task(work())
        await asyncio.sleep(delay_ms / 1000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert contenders(backend) == 0


async def test_a_timeout_around_it_leaves_nothing_behind(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    async with aio.hold(mutex.acquire):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), aio.hold(rival.acquire):
                pytest.fail("it was not free")
        assert contenders(backend) == 1


async def test_a_block_is_cancelled_when_its_lock_is_lost(mutex: Mutex, backend: Backend) -> None:
    has_cleaned_up = asyncio.Event()

    async def work() -> None:
        async with aio.hold(mutex.acquire) as grant:
            backend.delete(grant.guard().key)
            try:
                await asyncio.sleep(60)
            finally:
                has_cleaned_up.set()

    with pytest.raises(GrantLostError, match="removed"):
        async with asyncio.timeout(20):
            await work()
    assert has_cleaned_up.is_set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_stays_one(mutex: Mutex, backend: Backend) -> None:
    is_inside = asyncio.Event()

    async def work() -> None:
        async with aio.hold(mutex.acquire):
            is_inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await is_inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert contenders(backend) == 0


async def test_every_recipe_is_taken_the_same_way(
    open_session: OpenSession, backend: Backend
) -> None:
    lock = ReadWriteLock(open_session(), "rw")
    async with aio.hold(lock.write.acquire) as writing:
        await aio.call(lock.write.downgrade)
        async with aio.hold(lock.read.acquire, timeout_s=5) as reading:
            assert reading.token == writing.token
    semaphore = Semaphore(open_session(), "s", 2)
    async with aio.hold(semaphore.acquire), aio.hold(semaphore.acquire):
        assert await aio.call(semaphore.try_acquire) is None
    barriers = [Barrier(open_session(), "b", 2) for _ in range(2)]

    async def enter(barrier: Barrier) -> None:
        async with aio.hold(barrier.enter, timeout_s=20) as passage:
            assert passage.held

    async with asyncio.TaskGroup() as group:
        for barrier in barriers:
            group.create_task(enter(barrier))


async def test_lost_leaders_work_is_cancelled_and_ends_before_it_stands_again(
    open_session: OpenSession, backend: Backend
) -> None:
    session = open_session()
    log: list[str] = []
    leads_again = asyncio.Event()

    async def work(leadership: Leadership) -> None:
        log.append("leads")
        if len(log) > 1:
            leads_again.set()
            await asyncio.sleep(60)
        backend.delete(leadership.guard().key)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            log.append("ended")

    leading = asyncio.create_task(aio.lead(Election(session, "e", "c1"), work))
    async with asyncio.timeout(20):
        await leads_again.wait()
    assert log == ["leads", "ended", "leads"]
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading
    assert candidates(backend, "e") == ()
    session.close()
    with pytest.raises(SessionLostError):
        await aio.lead(Election(session, "e", "c1"), work)


async def test_waits_take_no_thread_of_the_event_loops_own(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    may_end, loop = threading.Event(), asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1)
    loop.set_default_executor(pool)
    blocked = loop.run_in_executor(None, may_end.wait)
    async with aio.hold(mutex.acquire):
        waiting = asyncio.create_task(aio.take(rival.acquire, timeout_s=20))
        await wait_for_contenders(backend, 2)
    assert (await waiting).held
    may_end.set()
    await blocked
