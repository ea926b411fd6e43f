"""The drill of the robust run: half way, the leader is killed with SIGKILL.

What is measured ends when the successor answers as leader, with the committed
state recovered and its server open, not when its name is in the store.
"""

import asyncio
import time

from pliska.trainer.demo.errors import DeadlineError
from pliska.trainer.demo.facts import EventKind, Takeover
from pliska.trainer.demo.journal import Journal
from pliska.trainer.demo.processes import Processes
from pliska.trainer.demo.training import Training

POLL_S = 0.02
"""Pause between two looks for the successor; the resolution of what is measured."""

PATIENCE_S = 30.0
"""How far beyond the session timeout a take-over is waited for, so that a late one is measured."""


class Failover:
    """Kills the leader once, at the first look at which half the rounds are committed.

    Attributes:
        takeover: What followed; None before.
    """

    def __init__(self, processes: Processes, session_timeout_s: float, journal: Journal) -> None:
        """Prepare the drill."""
        self.takeover: Takeover | None = None
        self._processes = processes
        self._session_timeout_s = session_timeout_s
        self._journal = journal

    async def watch(self, training: Training) -> None:
        """Kill the leader if it is time.

        Raises:
            DeadlineError: Nobody took over.
        """
        seen = training.observation
        if self.takeover is None and seen.leader and 2 * seen.round >= training.job.rounds:
            self.takeover = await self._drill(training, seen.leader)

    async def _drill(self, training: Training, leader: str) -> Takeover:
        killed_s = time.monotonic()
        await self._processes.kill(training.coordinators[leader])
        # At once, while nobody leads: what counts is what the store says at this moment.
        reading = asyncio.create_task(training.committed())
        run, killed_round = training.job.run, training.observation.round
        self._journal.note(
            EventKind.LEADER_KILLED, run, killed_round, f"leader {leader} killed with SIGKILL"
        )
        successor = await self._successor(training, leader)
        takeover_s = time.monotonic() - killed_s
        before = await reading
        last = before[-1].round if before else 0
        self._journal.note(
            EventKind.TAKEN_OVER, run, last, f"{successor} took over in {takeover_s:.2f} s"
        )
        return Takeover(leader, successor, last, takeover_s, before)

    async def _successor(self, training: Training, leader: str) -> str:
        limit_s = self._session_timeout_s + PATIENCE_S
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    successor = await training.look()
                    if successor is not None and successor != leader:
                        return successor
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise DeadlineError(
                f"no standby took over within {limit_s:g} s after leader {leader} was killed"
            ) from error
