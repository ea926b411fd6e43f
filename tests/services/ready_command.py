"""A copy of the zygote that runs a command, with the face of `subprocess.Popen`."""

import os
import select
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from services.zygote import the_zygote

READ_BYTES = 1 << 16


class ReadyCommand:
    """A process whose output is read from pipes; it has nothing on its standard input.

    Attributes:
        pid: Its process id.
        returncode: Its exit code, or the negative number of the signal that ended it; None
            before it is known that it ended.
        stdout: Its output, as text.
        stderr: Its messages, as text.
    """

    def __init__(
        self, program: str, words: Sequence[object], *, cwd: Path, env: Mapping[str, str]
    ) -> None:
        out, its_out = os.pipe()
        err, its_err = os.pipe()
        zygote = the_zygote()
        arguments = [str(word) for word in words]
        self.pid, self._told = zygote.copy(program, arguments, its_out, its_err, env, cwd)
        os.close(its_out)
        os.close(its_err)
        self.returncode: int | None = None
        self.stdout: IO[str] = os.fdopen(out)
        self.stderr: IO[str] = os.fdopen(err)
        self._said: dict[IO[str], list[bytes]] = {self.stdout: [], self.stderr: []}

    def poll(self) -> int | None:
        """Return its exit code if it has ended."""
        self._has_ended_within(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if not self._has_ended_within(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all that it says, and wait for its end; may be called again after a timeout."""
        until_s = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for stream in self._said:
                if not stream.closed:
                    selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(_left_s(until_s))
                if not ready:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
                for key, _ in ready:
                    stream = key.fileobj
                    assert not isinstance(stream, int)
                    content = os.read(key.fd, READ_BYTES)
                    if content:
                        self._said[stream].append(content)  # type: ignore[index]
                    else:
                        selector.unregister(stream)
                        stream.close()  # type: ignore[attr-defined]
        self.wait(_left_s(until_s))
        out, err = (b"".join(said).decode() for said in self._said.values())
        return out, err

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing after its end."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _has_ended_within(self, timeout_s: float | None) -> bool:
        if self.returncode is None:
            ready, _, _ = select.select([self._told], [], [], timeout_s)
            if not ready:
                return False
            self.returncode = int(os.read(self._told, 32))
            os.close(self._told)
        return True


def _left_s(until_s: float | None) -> float | None:
    return None if until_s is None else max(0.0, until_s - time.monotonic())
