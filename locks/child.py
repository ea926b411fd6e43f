"""A command run as a child process: in a group of its own, signalled as one, never left behind.

Knows nothing of locks. Called by `commands`, from the main thread.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from types import FrameType

from pliska.locks import tether

SIGNAL_EXIT_CODE = 128
"""What shells add to the number of the signal that ended a command."""

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_TERMINAL = 0


class Child:
    """A running command. Starts when it is made."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `command` without a shell, in a process group of its own.

        In the foreground of a terminal the group takes our place there, so that
        it can read from it and gets Ctrl-C by itself.
        """
        # The command is the user's own; that is what this is for.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command],
            env={**os.environ, **environment},
            process_group=0,
        )
        self._has_ended = threading.Event()
        self._has_terminal = _is_in_foreground()
        if self._has_terminal:
            self._give_terminal_to(self._process.pid)

    def send(self, number: int) -> None:
        """Send a signal to all of the group; harmless when it has ended."""
        if not self._has_ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def stop(self, grace_s: float) -> None:
        """End it: SIGTERM, and SIGKILL when it has not ended `grace_s` later."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        if not self._has_ended.wait(grace_s):
            self.send(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end.

        Returns:
            Its exit code, or `SIGNAL_EXIT_CODE` plus the signal that ended it.
        """
        code = self._process.wait()
        self._has_ended.set()
        if self._has_terminal:
            self._give_terminal_to(os.getpgrp())
        return code if code >= 0 else SIGNAL_EXIT_CODE - code

    def _give_terminal_to(self, group: int) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone by now
            os.tcsetpgrp(_TERMINAL, group)


class SignalRelay:
    """Passes signals on to the command, or calls off the wait that comes before it.

    Use it as a context manager, in the main thread.

    Attributes:
        cancelled: Set by the first signal that comes.
        received: That signal.
    """

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.received: int | None = None
        self._child: Child | None = None

    def pass_on_to(self, child: Child) -> None:
        """From now on signals are the command's; also the one that came already."""
        self._child = child
        if self.received is not None:
            child.send(self.received)

    def __enter__(self) -> "SignalRelay":
        self._before = {number: signal.signal(number, self._take) for number in FORWARDED}
        # Taking the terminal back from the command's group is not for us to be stopped by.
        self._before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as `signal` calls it
        self.received = self.received or number
        self.cancelled.set()
        if self._child is not None:
            self._child.send(number)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(_TERMINAL) == os.getpgrp()
    except OSError:
        return False
