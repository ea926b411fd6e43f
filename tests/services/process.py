"""One server process of a test: started, killed, frozen, and never left behind.

It dies with the test run, however that ends: the kernel kills it when the
thread that started it is gone, and that is one which lasts as long as the run.
Knows nothing of what the server does.
"""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TETHER = ("setpriv", "--pdeathsig", "KILL")
"""Has the kernel kill what follows when the thread that started it is gone (util-linux)."""
START_TIMEOUT_S = 90.0
"""Generous: a Java virtual machine on a busy machine with two cores."""
STOP_TIMEOUT_S = 10.0
TAIL_BYTES = 6_000

_starter = ThreadPoolExecutor(1, "service-starter")


class ServiceFailedError(Exception):
    """A server did not start, or ended by itself."""


class ServiceProcess:
    """A server that a test may treat badly. Starts when it is made."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, is_ready: Callable[[], bool]
    ) -> None:
        """Prepare and start.

        Args:
            name: What messages call it.
            command: Program and arguments.
            directory: Working directory; the log goes to `server.log` in it.
            is_ready: Whether the server answers.
        """
        self.name = name
        self.log = directory / "server.log"
        self._command = list(command)
        self._directory = directory
        self._is_ready = is_ready
        self.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start without waiting for it to answer."""
        self._process = _starter.submit(self._started).result()

    def _started(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*TETHER, *self._command],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it answers; when it does not, kill it and raise with the end of its log."""
        deadline_s = time.monotonic() + timeout_s
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise ServiceFailedError(f"{self.name} does not answer:\n{self.tail()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it with SIGKILL, frozen or not; harmless when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Kill it and start it on the same data and ports."""
        self.kill()
        self.start()
        self.wait_until_ready()

    def freeze(self) -> None:
        """Stop it with SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def tail(self) -> str:
        """The end of its log."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            return log.read().decode(errors="replace")


def wait_until_stopped(pid: int) -> None:
    """Wait until a process that was sent SIGSTOP does nothing any more."""
    state = Path(f"/proc/{pid}/stat")
    while state.read_text(encoding="ascii").rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)


def stop_between_writes(pid: int, address: str) -> None:
    """Send SIGSTOP, but not amid a write to an embedded store, where it would hold up all others.

    Args:
        pid: Of the process.
        address: Of the store that it uses.
    """
    while True:
        os.kill(pid, signal.SIGSTOP)
        wait_until_stopped(pid)
        if not address.startswith("embedded:") or _is_writable(address.removeprefix("embedded:")):
            return
        os.kill(pid, signal.SIGCONT)


def _is_writable(folder: str) -> bool:
    file = Path(folder) / "coordination.db"
    with contextlib.closing(sqlite3.connect(file, timeout=1.0, isolation_level=None)) as store:
        try:
            store.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        store.execute("ROLLBACK")
        return True


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
