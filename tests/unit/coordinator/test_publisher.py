"""Handing a committed version to those who wait."""

import asyncio

from pliska.coordinator.publisher import Published, Publisher


def version(number: int) -> Published:
    return Published(number, b"d" * 32, b"", is_final=False)


async def test_a_newer_version_wakes_everybody_who_waits() -> None:
    publisher = Publisher(version(1))
    waiting = [asyncio.create_task(publisher.newer_than(1, 60.0)) for _ in range(3)]
    await asyncio.sleep(0)
    await publisher.publish(version(2))
    assert await asyncio.gather(*waiting) == [version(2)] * 3


async def test_a_version_that_is_already_newer_is_returned_at_once() -> None:
    assert await Publisher(version(5)).newer_than(3, 0.0) == version(5)


async def test_the_wait_ends_without_a_version_when_its_time_has_passed() -> None:
    assert await Publisher(version(5)).newer_than(5, 0.01) is None


async def test_closing_sends_away_who_waits_and_who_comes_later() -> None:
    publisher = Publisher(version(5))
    waiting = asyncio.create_task(publisher.newer_than(5, 60.0))
    await asyncio.sleep(0)
    await publisher.close()
    assert await waiting is None
    assert await publisher.newer_than(5, 60.0) is None
    assert await publisher.newer_than(4, 60.0) == version(5)


async def test_recall_sends_those_away_who_wait_and_nobody_who_comes_later() -> None:
    publisher = Publisher(version(1))
    waiting = [asyncio.create_task(publisher.newer_than(1, 60.0)) for _ in range(2)]
    await asyncio.sleep(0)
    await publisher.recall()
    assert await asyncio.gather(*waiting) == [None, None]
    later = asyncio.create_task(publisher.newer_than(1, 60.0))
    await asyncio.sleep(0)
    await publisher.publish(version(2))
    assert await later == version(2)
