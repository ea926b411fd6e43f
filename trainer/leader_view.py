"""Who leads a job, as one worker knows it.

Watches in the store tell of each change, and while nothing changes the store is
asked once a minute. While it does not answer, what it said last counts: that leader may
well train on, and one that leads no more refuses by itself. Used by `worker`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from random import SystemRandom
from typing import TypeVar

from pliska.coordinator.client import JobDirectory, Leader, Sighting
from pliska.coordinator.wire.thread import in_thread
from pliska.discovery.follower import Copy, Follower
from pliska.locks import SystemClock
from pliska.trainer.errors import NoCoordinatorError

HeardT = TypeVar("HeardT")

log = logging.getLogger(__name__)

CONFIRM_S = 60.0
"""Without a change the store is asked so rarely: should it forget a watch, that costs a minute."""
CLOSE_S_MAX = 2.0
"""How long it may take in the end until the watches are gone; a store may not answer just then."""


class LeaderView:
    """What the store said last. Belongs to one event loop; `following` keeps it true."""

    def __init__(self, job: str) -> None:
        """Know nothing yet of the job of this name."""
        self._job = job
        self._sighting: Sighting | None = None
        self._epoch = 0
        self._silence = "it has not answered yet"
        self._news = asyncio.Event()

    async def find(self, rounds: int, timeout_s: float) -> Leader | None:
        """Wait until somebody leads the job; None: it is finished, and nobody does any more.

        Args:
            rounds: How many the job has.
            timeout_s: How long nobody may lead it. While the store is silent, nobody knows.

        Raises:
            NoCoordinatorError: Nobody has led it for so long.
        """
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._wait(lambda now: _is_answer(now, rounds))
            except TimeoutError as error:
                if not self._silence:
                    raise NoCoordinatorError(
                        f"nobody has led job {self._job!r} for {timeout_s:g} s: "
                        "start a coordinator, or read its log"
                    ) from error

    async def superseded(self, leader: Leader) -> None:
        """Return when another one leads: this leader may hang, and never say so."""
        await self._wait(lambda now: now.leader is not None and now.leader.epoch != leader.epoch)

    def take(self, sighting: Sighting) -> None:
        """Hear what the store says now."""
        self._silence = ""
        # A store may answer with what it knew before: never back to an old leader.
        if sighting.leader is None or sighting.leader.epoch >= self._epoch:
            self._epoch = sighting.leader.epoch if sighting.leader else self._epoch
            self._sighting = sighting
            self._news.set()

    def miss(self, reason: str) -> None:
        """Hear that the store says nothing, or nothing that can be believed."""
        if reason != self._silence:
            log.warning("job=%s reason=%s", self._job, f"the store does not answer: {reason}")
        self._silence = reason

    async def _wait(self, is_awaited: Callable[[Sighting], bool]) -> Leader | None:
        while self._sighting is None or not is_awaited(self._sighting):
            self._news.clear()
            await self._news.wait()
        return self._sighting.leader


@contextlib.asynccontextmanager
async def following(directory: JobDirectory) -> AsyncIterator[LeaderView]:
    """Keep a view true for the length of the block; then no thread and no watch is left."""
    view, loop = LeaderView(directory.job), asyncio.get_running_loop()
    feed = directory.backend.open_feed()
    follower = Follower("pliska-leader-view", feed, SystemClock(), SystemRandom(), CONFIRM_S)

    def told(hear: Callable[[HeardT], None]) -> Callable[[HeardT], None]:
        def tell(heard: HeardT) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(hear, heard)

        return tell

    try:
        for path in directory.leader_paths:
            copy = Copy(path, lambda _: directory.sighting(), told(view.take), told(view.miss))
            await in_thread(follower.keep, copy)
        yield view
    finally:
        follower.close()
        await in_thread(follower.join, CLOSE_S_MAX)


def _is_answer(sighting: Sighting, rounds: int) -> bool:
    return sighting.leader is not None or sighting.version >= rounds
