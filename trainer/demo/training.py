"""One training of the demonstration: its processes from their start to their end.

Starts coordinators and workers, asks the leader for its snapshot several times
a second, and ends when all processes have. What happens half way is for
`failover` to do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from pliska.coordinator.client import JobDirectory, job_snapshot
from pliska.coordinator.records.history import committed_history
from pliska.trainer.demo.errors import DeadlineError
from pliska.trainer.demo.facts import CommittedRound, EventKind
from pliska.trainer.demo.jobs import DemoJob
from pliska.trainer.demo.journal import Journal
from pliska.trainer.demo.observation import Observation
from pliska.trainer.demo.options import DemoOptions
from pliska.trainer.demo.processes import Child, Processes
from pliska.trainer.demo.site import Site

POLL_S = 0.25
"""Pause between two looks at the leader."""

START_TIMEOUT_S = 90.0
ROUND_TIMEOUT_S = 2.0
"""A training may take so long to start, and for each of its rounds."""


class Training:
    """One run of one job.

    Attributes:
        directory: The job in the store.
        coordinators: Its coordinators by name, once they are started.
        observation: What is known of it.
    """

    def __init__(
        self, job: DemoJob, options: DemoOptions, site: Site, processes: Processes, journal: Journal
    ) -> None:
        """Prepare; nothing is started."""
        self.job = job
        self.directory = JobDirectory.at(site.store, job.name)
        self.coordinators: dict[str, Child] = {}
        self.observation = Observation(job, journal)
        self._options = options
        self._site = site
        self._processes = processes
        self._journal = journal

    async def run(self, coordinators: Sequence[str], watch: "Watch") -> None:
        """Train from the first round to the last.

        Args:
            coordinators: Names of those to start; one leads, the others stand by.
            watch: Called after each look at the leader, and not again before
                it has returned.

        Raises:
            ProcessError: A process failed.
            DeadlineError: It takes far too long.
        """
        self._journal.note(EventKind.STARTED, self.job.run, 0, "processes start")
        limit_s = START_TIMEOUT_S + ROUND_TIMEOUT_S * self.job.rounds
        try:
            async with asyncio.timeout(limit_s):
                await self._start_and_end(coordinators, watch)
        except TimeoutError as error:
            raise DeadlineError(
                f"the {self.job.run} run stands at round {self.observation.round} of "
                f"{self.job.rounds} after {limit_s:g} s: {self.observation.reason}; "
                f"logs are in {self._site.logs}"
            ) from error
        self._journal.note(EventKind.FINISHED, self.job.run, self.job.rounds, "finished")

    def close(self) -> None:
        """Close the connection to the store."""
        self.directory.backend.close()

    async def committed(self) -> tuple[CommittedRound, ...]:
        """Read back all that is committed, from the store and the log."""
        storage = str(self._site.storage)
        history = await asyncio.to_thread(committed_history, self.directory, storage)
        return tuple(CommittedRound(each.record.round, each.digest.hex()) for each in history)

    async def look(self) -> str | None:
        """Ask the leader how things stand; return its name, None when nobody answers as leader."""
        snapshot = await job_snapshot(self.directory)
        if snapshot.get("role") == "leader":
            self.observation.take(snapshot)
        else:
            self.observation.miss()
        return self.observation.leader

    async def _start_and_end(self, coordinators: Sequence[str], watch: "Watch") -> None:
        for name in coordinators:
            self.coordinators[name] = await self._start_coordinator(name)
        workers = [await self._start_worker(worker) for worker in self.job.workers]
        children = [*self.coordinators.values(), *workers]
        watching = asyncio.create_task(self._watch(watch))
        ending = asyncio.create_task(self._all_ended(children))
        try:
            await asyncio.wait({watching, ending}, return_when=asyncio.FIRST_COMPLETED)
            # The one watches for ever: it is done first only if it failed.
            await (watching if watching.done() else ending)
        finally:
            watching.cancel()
            ending.cancel()
            await asyncio.wait({watching, ending})

    async def _all_ended(self, children: Iterable[Child]) -> None:
        await asyncio.gather(*(self._processes.ended_well(child) for child in children))

    async def _watch(self, watch: "Watch") -> None:
        while True:
            await self.look()
            await watch(self)
            await asyncio.sleep(POLL_S)

    async def _start_coordinator(self, name: str) -> Child:
        arguments = ["coordinator", "run", "--name", name]
        arguments += ["--job", str(self._site.job_file(self.job)), "--store", self._site.store]
        arguments += ["--storage", str(self._site.storage)]
        arguments += ["--session-timeout", str(self._options.session_timeout_s)]
        return await self._processes.start(f"{self.job.run}-{name}", arguments)

    async def _start_worker(self, worker: str) -> Child:
        arguments = ["worker", "run", "--job", self.job.name, "--store", self._site.store]
        arguments += ["--key", str(self._site.key_file(worker))]
        if worker in self.job.byzantine:
            arguments += self._attack()
        return await self._processes.start(f"{self.job.run}-{worker}", arguments)

    def _attack(self) -> list[str]:
        arguments = ["--attack", self._options.attack.value]
        if self._options.attack_scale is not None:
            arguments += ["--scale", str(self._options.attack_scale)]
        for accomplice in self.job.byzantine:
            arguments += ["--accomplice", accomplice]
        return arguments


Watch = Callable[[Training], Awaitable[None]]
"""Does something with a training at each look at its leader."""
