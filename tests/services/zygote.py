"""A process that has loaded everything, and becomes copies of itself that run `pliska` or a script.

Loading torch takes a coordinator three seconds of processor time, and any command
half a second; tests start hundreds of them. A copy is a process and session of
its own that can be killed as any other; only the loading is shared. The
demonstration and the walk of the README start what people start.

Run as `python -m services.zygote` with a socket as its standard input; ends with it.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pliska.locks.tether import PR_SET_PDEATHSIG

MESSAGE_BYTES_MAX = 1 << 17
PLISKA = "pliska"
TESTS = Path(__file__).parents[1]


class Zygote:
    """The side of the test: asks for copies."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": "1",  # read when torch is loaded
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.zygote"],
                stdin=theirs.fileno(),
                env=environment,
                start_new_session=True,
            )

    def copy(
        self,
        program: str,
        arguments: list[str],
        output: int,
        errors: int,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> tuple[int, int]:
        """Start a copy that runs a program; it dies with this process.

        Args:
            program: `PLISKA`, or the path of a script.
            arguments: Of the program.
            output: File descriptor of its standard output.
            errors: File descriptor of its standard error.
            environment: As of this process unless given.
            directory: Where it runs; as this process unless given.

        Returns:
            Its process id, and a file descriptor from which its exit code can be
            read, as `subprocess` counts them, once it has ended.
        """
        request = {
            "program": program,
            "arguments": arguments,
            "environment": {**(os.environ if environment is None else environment)},
            "directory": str(directory or Path.cwd()),
        }
        told, telling = os.pipe()
        fds = [output, errors, telling]
        socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
        os.close(telling)
        return int(os.read(told, 32)), told

    def end(self) -> None:
        """End it, and with it all copies."""
        self._socket.close()
        self._process.wait()


@cache
def the_zygote() -> Zygote:
    """Return the one of this process, which ends with it."""
    zygote = Zygote()
    atexit.register(zygote.end)
    return zygote


def _serve(requests: socket.socket) -> None:
    import torch._dynamo  # noqa: F401 - torch loads it at the first step of an optimizer

    import pliska.coordinator.commands.coordinator
    import pliska.coordinator.daemon
    import pliska.trainer.start  # noqa: F401

    gc.freeze()  # what is shared stays so
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended who watch copies
    while True:
        message, fds, _, _ = socket.recv_fds(requests, MESSAGE_BYTES_MAX, 3)
        if not message:
            return
        zygote = os.getpid()
        if os.fork() == 0:
            requests.close()
            _watch(json.loads(message), fds, zygote)
        for fd in fds:
            os.close(fd)


def _watch(request: dict[str, Any], fds: list[int], zygote: int) -> NoReturn:
    """Start the copy, and tell how it ended."""
    _die_with(zygote)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    watcher = os.getpid()
    copy = os.fork()
    if copy == 0:
        _become(request, fds, watcher)
    telling = fds[2]
    for fd in fds[:2]:
        os.close(fd)
    _, status = os.waitpid(copy, 0)
    os.write(telling, f"{os.waitstatus_to_exitcode(status)}".encode())
    os._exit(0)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _become(request: dict[str, Any], fds: list[int], watcher: int) -> NoReturn:
    """Run the program to its end as a process in its own right."""
    os.setsid()
    _die_with(watcher)
    output, errors, telling = fds
    os.write(telling, f"{os.getpid()}".encode())
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    for fd in fds:
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv = [request["program"], *request["arguments"]]
    sys.modules["__main__"].__package__ = None  # typer would take the program's name from it
    code = _run(request["program"])
    threading._shutdown()  # as an interpreter does at its end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(program: str) -> int:
    """Run a program and return its exit code."""
    try:
        if program == PLISKA:
            from pliska.coordinator.commands.main import main

            main()
        else:
            sys.path[0] = str(Path(program).parent)
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - whatever it is, it is shown and ends the process
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(socket.socket(fileno=0))
