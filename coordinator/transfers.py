"""The payloads that are on their way to a leader: at most one a worker, each in a task of its own.

What is received, and where to, is the caller's. Used by `intake`, which receives,
and by `driver`, which ends what comes too late; on one event loop.
"""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class Transfers:
    """The transfers of one leadership."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_worker: dict[str, asyncio.Task[Any]] = {}

    @property
    def workers(self) -> Collection[str]:
        """Whose are under way; each alone may touch its worker's row."""
        return self._by_worker.keys()

    async def receive(self, worker: str, receiving: Coroutine[Any, Any, ResultT]) -> ResultT | None:
        """Receive a payload, unless that is ended first.

        Args:
            worker: Whose; it has no other transfer under way.
            receiving: Claims the row, fills it, and gives it back if it fails or
                is cancelled. Nothing touches the row after it has ended.

        Returns:
            What it returned; None when it was ended by another call.
        """
        task = asyncio.create_task(receiving)
        self._by_worker[worker] = task
        task.add_done_callback(lambda _: self._by_worker.pop(worker))
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        return None if task.cancelled() else task.result()

    def abandon(self, worker: str) -> None:
        """Break off a transfer that a dead process of this worker may have left."""
        if worker in self._by_worker:
            self._by_worker[worker].cancel()

    async def end(self, workers: Collection[str]) -> None:
        """Break off what these are still sending; after this, their rows change no more."""
        transfers = {self._by_worker[worker] for worker in workers}
        for transfer in transfers:
            transfer.cancel()
        if transfers:
            await asyncio.wait(transfers)
