"""Work that something else may end."""

import asyncio

import pytest

from pliska.trainer.until import until


async def forever(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def seven() -> int:
    return 7


async def nothing() -> None:
    return None


async def fail() -> int:
    raise ValueError("no")


async def fail_quietly() -> None:
    raise ValueError("no")


async def test_result_of_the_work_is_returned_and_the_rest_cancelled() -> None:
    ended: list[str] = []
    assert await until(seven(), forever(ended, "end")) == 7
    assert ended in ([], ["end"])  # it may not even have begun


@pytest.mark.parametrize("end", [nothing, fail_quietly])
async def test_end_cancels_the_work_however_it_came(end: object) -> None:
    ended: list[str] = []
    assert callable(end)
    assert await until(forever(ended, "work"), end()) is None
    assert ended == ["work"]


async def test_error_of_the_work_is_raised() -> None:
    with pytest.raises(ValueError, match="no"):
        await until(fail(), forever([], "end"))


async def test_cancellation_cancels_both() -> None:
    ended: list[str] = []
    task = asyncio.create_task(until(forever(ended, "work"), forever(ended, "end")))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert sorted(ended) == ["end", "work"]
