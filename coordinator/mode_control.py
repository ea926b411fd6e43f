"""Keeps the rounds of one leadership in the mode that the store asks for.

It looks at the job's mode record now and then and tells the round machine. Under
the policy `auto` it is this leader that writes the record, fenced by its
leadership: whoever asks for a mode, the record is the only word on it.
"""

import asyncio
import logging
from collections.abc import Callable

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.records.mode import ModeSetting
from pliska.coordinator.rounds.gathering import Gatherings
from pliska.coordinator.rounds.mode_policy import Leaning, Measured, is_due, lean
from pliska.coordinator.rounds.round_state import RoundState
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.thread import in_thread
from pliska.locks import Leadership, LockError

log = logging.getLogger(__name__)

CHECK_S = 0.25
"""How often the record is looked at."""


class ModeControl:
    """The mode of one job while this coordinator leads it."""

    def __init__(
        self,
        job: Job,
        directory: JobDirectory,
        leadership: Leadership,
        gatherings: Gatherings,
        state: Callable[[], RoundState],
        request: Callable[[ModeSetting], None],
    ) -> None:
        """Prepare; nothing is read before `run`.

        Args:
            job: The job.
            directory: Holds its mode record.
            leadership: Fences what the policy writes.
            gatherings: What each mode needs.
            state: Returns where the round stands.
            request: Tells the round machine which mode is asked for.
        """
        self._job = job
        self._directory = directory
        self._leadership = leadership
        self._gatherings = gatherings
        self._state = state
        self._request = request
        self._leaning: Leaning | None = None

    async def run(self) -> None:
        """Follow the record, and the policy where the job has one, until cancelled."""
        while True:
            try:
                await self._follow()
                if self._job.mode.policy == "auto":
                    await self._consider()
            except (LockError, DamagedStateError) as error:
                log.warning("job=%s reason=%s", self._job.name, f"the mode stays: {error}")
            await asyncio.sleep(CHECK_S)

    async def _follow(self) -> None:
        asked = await in_thread(self._directory.mode, self._job)
        if asked.mode_epoch > self._state().requested.mode_epoch:
            log.info("mode=%s mode_epoch=%d reason=%s", asked.mode, asked.mode_epoch, asked.reason)
            self._request(asked)

    async def _consider(self) -> None:
        """Go where the rounds have leaned for long enough."""
        state = self._state()
        if state.requested != state.setting:
            return
        in_force = state.setting.mode
        stragglers = state.turns.stragglers(state.present)
        measured = Measured(state.round, len(state.present), len(stragglers))
        leaning = lean(self._leaning, in_force, measured, self._gatherings)
        self._leaning = leaning
        if not is_due(leaning, in_force, state.round, self._job.mode.patience):
            return
        checks = [self._leadership.guard()]
        reason = f"policy: {leaning.reason}"
        await in_thread(self._directory.switch_mode, self._job, leaning.mode, reason, checks)
