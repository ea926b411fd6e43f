"""Runs a command that dies with the process that started it, even when that is killed.

Started by `processes` as a script, on an interpreter without site packages, so
that it costs milliseconds: `tether.py PARENT-PID COMMAND ARGUMENT ...`. It asks
the kernel for SIGKILL at the parent's death and becomes the command. The
request is Linux's; elsewhere the command simply runs, and only the parent's own
clean-up ends it.

The kernel counts the death of the *thread* that started it: start it from one
that lives as long as the process, such as the main thread.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From Linux's `prctl.h`; see prctl(2)."""


def main(arguments: list[str]) -> None:
    """Tie this process to its parent and become the command."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent died before the request was made: nobody else will end us.
            sys.exit(1)
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
