"""A client of a lock in a process of its own, which a test may kill and freeze."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from services.process import wait_until_stopped

CLIENT = Path(__file__).parents[1] / "integration" / "lock_client.py"


class LockProcess:
    """A lock client in a process of its own."""

    def __init__(self, address: str, lease_s: float, prefix: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(CLIENT), address, str(lease_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answer()

    def ask(self, *command: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def do(self, *command: object) -> dict[str, Any]:
        self.ask(*command)
        return self.answer()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            wait_until_stopped(self.process.pid)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


NewProcess = Callable[..., LockProcess]
"""Starts one; takes its lease."""
