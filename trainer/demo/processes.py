"""The demonstration's processes: started, watched, killed, and never left behind.

Each is the real `pliska` command in a process and a session of its own, with
its output in a log file. Knows nothing of what they do. Called by `run`.

Nothing stays behind: leaving the `async with` block stops them all, whatever
ended it; should this process be killed with SIGKILL, the kernel kills them
(see `pliska.locks.tether`).
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pliska.locks import tether
from pliska.trainer.demo.errors import ProcessError

STOP_GRACE_S = 3.0
"""How long a process has to end after SIGTERM before it gets SIGKILL."""

TAIL_BYTES = 2048
"""How much of its log's end is shown of a process that failed."""


@dataclass(eq=False, slots=True)
class Child:
    """One process.

    Attributes:
        name: Unique within the demonstration; names the log file too.
        log: Where its output goes.
        may_end: Whether its end, with any exit code, is no failure any more.
    """

    name: str
    log: Path
    process: asyncio.subprocess.Process
    may_end: bool = False

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and to what it started; harmless after its end."""
        self.may_end = True
        if self.is_running:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def tail(self) -> str:
        """Return the end of its log."""
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode(errors="replace").strip()


class Processes:
    """All processes of a demonstration. Use it as `async with Processes(command, directory)`.

    Belongs to the event loop of the main thread.
    """

    def __init__(self, command: Path, log_directory: Path) -> None:
        """Prepare; nothing is started yet.

        Args:
            command: The executable that every process runs.
            log_directory: Where logs go; made when missing.
        """
        self._command = command
        self._log_directory = log_directory
        self._children: dict[str, Child] = {}

    async def __aenter__(self) -> Self:
        """Make the directory of the logs."""
        self._log_directory.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop them all; a second Ctrl-C ends the patience, not the clean-up."""
        try:
            await self.stop(self._children.values())
        finally:
            for child in self._children.values():
                child.signal(signal.SIGKILL)

    async def start(self, name: str, arguments: Sequence[str]) -> Child:
        """Start the command with these arguments; all its output goes to its log.

        Raises:
            ProcessError: The name is taken. That the command cannot be run
                shows in `ended_well`.
        """
        log = self._log_directory / f"{name}.log"
        with log.open("wb") as output:
            return await self._spawn(name, arguments, log, stdout=output.fileno(), stderr=STDOUT)

    async def output(self, name: str, arguments: Sequence[str]) -> bytes:
        """Run the command to its end and return what it printed; messages go to the log.

        Raises:
            ProcessError: The name is taken, or the command failed.
        """
        log = self._log_directory / f"{name}.log"
        with log.open("wb") as messages:
            child = await self._spawn(name, arguments, log, PIPE, stderr=messages.fileno())
        printed, _ = await child.process.communicate()
        await self.ended_well(child)
        return printed

    async def _spawn(
        self, name: str, arguments: Sequence[str], log: Path, stdout: int, stderr: int
    ) -> Child:
        if name in self._children:
            raise ProcessError(f"there is already a process named {name}")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", tether.__file__, str(os.getpid())),
            *(str(self._command), *arguments),
            stdin=DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        child = Child(name, log, process)
        self._children[name] = child
        return child

    async def kill(self, child: Child) -> None:
        """End a process at once with SIGKILL: it has no chance to say goodbye."""
        child.signal(signal.SIGKILL)
        await child.process.wait()

    async def stop(self, children: Iterable[Child]) -> None:
        """Ask processes to end with SIGTERM, and make those that do not."""
        stopped = list(children)
        for child in stopped:
            child.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_GRACE_S):
                await _all_ended(stopped)
        except TimeoutError:
            for child in stopped:
                child.signal(signal.SIGKILL)
            await _all_ended(stopped)

    async def ended_well(self, child: Child) -> None:
        """Wait until a process ends by itself.

        Raises:
            ProcessError: It ended with an exit code other than 0 though it
                was neither stopped nor killed from here.
        """
        code = await child.process.wait()
        if code != 0 and not child.may_end:
            raise ProcessError(
                f"{child.name} ended {_describe(code)}; {child.log} ends with:\n{child.tail()}"
            )

    def running_pids(self) -> list[int]:
        """Return the ids of those that have not ended."""
        return [child.pid for child in self._children.values() if child.is_running]


async def _all_ended(children: Iterable[Child]) -> None:
    await asyncio.gather(*(child.process.wait() for child in children))


def _describe(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    return f"by signal {signal.Signals(-code).name}"
