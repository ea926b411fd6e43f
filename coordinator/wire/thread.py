"""Blocking work in a thread that is never left alone: a cancelled caller waits for its end.

Called by coordinator and worker. `asyncio.to_thread` lets a cancelled caller go on
while the thread still works on what the caller is about to close.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

ParametersT = ParamSpec("ParametersT")
ResultT = TypeVar("ResultT")


async def in_thread(
    work: Callable[ParametersT, ResultT],
    *arguments: ParametersT.args,
    **options: ParametersT.kwargs,
) -> ResultT:
    """Run `work` in a thread and return what it returns, or raise what it raises."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **options))
    try:
        return await asyncio.shield(running)
    finally:
        if not running.done():
            await asyncio.wait({running})
            # Whoever cancelled does not want the result; nor is an error lost unseen.
            if not running.cancelled():
                running.exception()
