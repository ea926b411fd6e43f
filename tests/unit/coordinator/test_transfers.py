"""Payloads on their way: one a worker, and none goes on after it was ended."""

import asyncio

import pytest

from pliska.coordinator.transfers import Transfers


class Payload:
    """A payload that arrives when it is told to."""

    def __init__(self) -> None:
        self.is_begun = asyncio.Event()
        self.is_whole = asyncio.Event()
        self.was_ended = False

    async def receive(self) -> str:
        self.is_begun.set()
        try:
            await self.is_whole.wait()
        except asyncio.CancelledError:
            self.was_ended = True
            raise
        return "whole"


async def begun(transfers: Transfers, worker: str, payload: Payload) -> "asyncio.Task[str | None]":
    task = asyncio.create_task(transfers.receive(worker, payload.receive()))
    await payload.is_begun.wait()
    return task


async def test_what_arrives_is_returned_and_no_longer_under_way() -> None:
    transfers, payload = Transfers(), Payload()
    task = await begun(transfers, "a", payload)
    payload.is_whole.set()
    assert await task == "whole"
    assert not transfers.workers


async def test_only_the_named_workers_are_ended_and_it_is_over_when_that_returns() -> None:
    transfers, one, other = Transfers(), Payload(), Payload()
    first, second = await begun(transfers, "a", one), await begun(transfers, "b", other)
    await transfers.end({"a"})
    assert one.was_ended
    assert not other.was_ended
    assert await first is None
    transfers.abandon("b")
    transfers.abandon("nobody")
    assert await second is None
    await transfers.end(transfers.workers)


async def test_caller_that_is_cancelled_takes_its_transfer_with_it() -> None:
    transfers, payload = Transfers(), Payload()
    task = await begun(transfers, "a", payload)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert payload.was_ended
