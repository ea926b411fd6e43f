"""The demonstration from its first process to its last: the order of things, and nothing else.

The robust run first, with its drill; then the two that it is compared with;
then the registry. One run at a time, since each takes all the cores there are
and 2 GB of memory. Each step is a module of its own.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pliska.trainer.demo.display import DemoSnapshot, Display
from pliska.trainer.demo.facts import CommittedRound, DemoFacts, Rollback, Takeover
from pliska.trainer.demo.failover import Failover
from pliska.trainer.demo.jobs import RunName, demo_jobs
from pliska.trainer.demo.journal import Journal
from pliska.trainer.demo.measure import measured_accuracy
from pliska.trainer.demo.memory import MemoryPeak
from pliska.trainer.demo.options import DemoOptions
from pliska.trainer.demo.processes import Processes
from pliska.trainer.demo.release import Release
from pliska.trainer.demo.site import Site
from pliska.trainer.demo.training import Training

MEMORY_PAUSE_S = 0.5
"""Between two looks at the memory of all processes."""


class Demonstration:
    """One demonstration. Belongs to the event loop of the main thread; run it once."""

    def __init__(self, options: DemoOptions, site: Site, command: Path, display: Display) -> None:
        """Prepare; nothing is started.

        Args:
            options: What to run.
            site: Where.
            command: The `pliska` executable.
            display: Shown the newest state several times a second.
        """
        self._options = options
        self._site = site
        self._display = display
        self._journal = Journal()
        self._memory = MemoryPeak()
        self._processes = Processes(command, site.logs)
        self._jobs = {job.run: job for job in demo_jobs(options)}
        self._trainings: dict[RunName, Training] = {}

    async def run(self) -> DemoFacts:
        """Run everything and return what it has shown.

        Raises:
            DemoError: It could not be brought to its end; no process is left.
        """
        await asyncio.to_thread(self._site.write_jobs, self._jobs.values())
        await asyncio.to_thread(self._site.enrol_workers, self._options.worker_names)
        self._trainings = {
            run: Training(job, self._options, self._site, self._processes, self._journal)
            for run, job in self._jobs.items()
        }
        try:
            async with self._processes, self._measuring():
                takeover, committed = await self._train_robustly()
                await self._train_for_comparison()
                rollback = await self._release()
        finally:
            for training in self._trainings.values():
                training.close()
        return self._facts(takeover, committed, rollback)

    async def _train_robustly(self) -> tuple[Takeover | None, tuple[CommittedRound, ...]]:
        robust = self._trainings[RunName.ROBUST]
        failover = Failover(self._processes, self._options.session_timeout_s, self._journal)

        async def show_and_drill(training: Training) -> None:
            await self._show(training)
            await failover.watch(training)

        await robust.run(("c1", "c2"), show_and_drill)
        await self._measure(robust)
        return failover.takeover, await robust.committed()

    async def _train_for_comparison(self) -> None:
        for run in (RunName.MEAN, RunName.CLEAN):
            await self._trainings[run].run(("c1",), self._show)
            await self._measure(self._trainings[run])

    async def _release(self) -> Rollback:
        release = Release(self._processes, self._site.store, self._journal, self._options.rounds)
        good, poisoned = (
            (self._site.model_file(training.job), training.observation.curve[-1].accuracy)
            for training in (self._trainings[RunName.ROBUST], self._trainings[RunName.MEAN])
        )
        rollback = await release.run(*good, *poisoned)
        await self._show(self._trainings[RunName.ROBUST])
        return rollback

    async def _measure(self, training: Training) -> None:
        """Add the accuracy of the last version, and show that the run is at its end."""
        file = self._site.model_file(training.job)
        accuracy = await asyncio.to_thread(measured_accuracy, file, self._options)
        training.observation.conclude(accuracy)
        await self._show(training)

    async def _show(self, _training: Training) -> None:
        runs = tuple(training.observation.snapshot for training in self._trainings.values())
        self._display.show(DemoSnapshot(runs, self._journal.events))

    @asynccontextmanager
    async def _measuring(self) -> AsyncIterator[None]:
        """Look at the memory of all processes meanwhile."""
        task = asyncio.create_task(self._look_at_memory())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _look_at_memory(self) -> None:
        while True:
            pids = [os.getpid(), *self._processes.running_pids()]
            await asyncio.to_thread(self._memory.look, pids)
            await asyncio.sleep(MEMORY_PAUSE_S)

    def _facts(
        self, takeover: Takeover | None, committed: tuple[CommittedRound, ...], rollback: Rollback
    ) -> DemoFacts:
        robust = self._trainings[RunName.ROBUST].observation
        return DemoFacts(
            options=self._options,
            curves={run: training.observation.curve for run, training in self._trainings.items()},
            committed=committed,
            takeover=takeover,
            flagged=robust.flagged,
            suspected_at_end=robust.suspects,
            rollback=rollback,
            elapsed_s=self._journal.elapsed_s,
            memory_bytes_max=self._memory.bytes_max,
            events=self._journal.events,
        )
