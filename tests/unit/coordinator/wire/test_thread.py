"""Work in a thread that its caller never leaves alone."""

import asyncio
import threading

import pytest

from pliska.coordinator.wire.thread import in_thread


async def test_it_returns_and_raises_what_the_work_does() -> None:
    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 7, 0)


async def test_cancelled_caller_ends_after_the_work_has() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(10.0)
        done.set()

    caller = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    await asyncio.sleep(0.05)
    assert not caller.done()
    go_on.set()
    await asyncio.wait({caller})
    assert caller.cancelled()
    assert done.is_set()


async def test_error_of_work_that_nobody_waits_for_any_more_is_not_reported_as_unseen() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(10.0)
        raise ValueError("too late to matter")

    caller = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    go_on.set()
    await asyncio.wait({caller})
    assert caller.cancelled()
