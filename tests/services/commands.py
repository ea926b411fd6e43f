"""`pliska` as people run it: real processes on an embedded store of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from services.ready_command import ReadyCommand
from services.zygote import PLISKA

EXECUTABLE = Path(sys.executable).with_name("pliska")
RUN_TIMEOUT_S = 60.0

Start = Callable[..., ReadyCommand]
Run = Callable[..., subprocess.CompletedProcess[str]]


class Commands:
    """Starts one group of subcommands in `folder`, with the store beside."""

    def __init__(self, group: str, folder: Path) -> None:
        self._group = group
        self._folder = folder
        self._processes: list[ReadyCommand] = []
        self._environment = {
            **os.environ,
            "PLISKA_STORE": f"embedded:{folder / 'store'}",
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    def start(self, *arguments: str) -> ReadyCommand:
        process = ReadyCommand(
            PLISKA, [self._group, *arguments], cwd=self._folder, env=self._environment
        )
        self._processes.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=RUN_TIMEOUT_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
