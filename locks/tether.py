"""Becomes a command that dies with the process that started it, even when that is killed.

Started as a script, on an interpreter without site packages, so that it costs
milliseconds: `tether.py PARENT-PID COMMAND ARGUMENT ...`. It asks the kernel
for SIGKILL at the parent's death, since a command must not outlive the lock
that protects it. The request is Linux's; elsewhere only the parent's own
clean-up ends the command. Called by `child`, and by the demonstration for its
processes.

The kernel counts the death of the *thread* that started it: start it from the
main thread.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From Linux's `prctl.h`; see prctl(2)."""
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of shells, `env` and `timeout` for a command that cannot be started."""


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and become the command."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent died before the request was made: nobody else will end us.
            sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.stderr.write(f"error: {command[0]} cannot be run: {error.strerror}\n")
        sys.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    main(sys.argv[1:])
