"""The processes of a site, as copies of one that has loaded everything: see `services.zygote`."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from pliska.trainer.demo.errors import ProcessError
from pliska.trainer.demo.processes import Child, Processes
from services.zygote import Zygote


class Copy:
    """What there is of `asyncio.subprocess.Process` that a `Child` needs."""

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._told = told
        self._has_ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(told, self._end)

    async def wait(self) -> int:
        await self._has_ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._told)
        self.returncode = int(os.read(self._told, 32))
        os.close(self._told)
        self._has_ended.set()


class ReadyProcesses(Processes):
    """Processes that run `pliska`, or scripts, without loading anything first."""

    def __init__(self, zygote: Zygote, program: str | None, log_directory: Path) -> None:
        """Prepare; nothing is started yet.

        Args:
            zygote: Makes the copies.
            program: What every process runs; None: what its first argument names.
            log_directory: Where logs go; made when missing.
        """
        super().__init__(Path(program or "python"), log_directory)
        self._zygote = zygote
        self._program = program

    async def _spawn(
        self, name: str, arguments: Sequence[str], log: Path, stdout: int, stderr: int
    ) -> Child:
        if name in self._children:
            raise ProcessError(f"there is already a process named {name}")
        words = list(arguments)
        program = self._program or words.pop(0)
        errors = stdout if stderr == asyncio.subprocess.STDOUT else stderr
        copy = Copy(*self._zygote.copy(program, words, stdout, errors))
        child = Child(name, log, copy)
        self._children[name] = child
        return child
