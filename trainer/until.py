"""Work that something else may end."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


async def until(
    work: Coroutine[Any, Any, ResultT], end: Coroutine[Any, Any, None]
) -> ResultT | None:
    """Do `work` until it is done or `end` is, however that came; the other one is cancelled.

    Returns:
        What `work` returned; None when `end` was first.

    Raises:
        Exception: What `work` raised.
    """
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(end)
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        ending.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)
