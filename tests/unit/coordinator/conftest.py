"""A real process that kills itself at the k-th system call, for every k there is."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CRASHER = """
import os, signal, sys
from pathlib import Path

{source}

STEPS_MAX = 200
CALLS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "close")

def die_at(step):
    seen = 0
    def counted(call):
        def run(*arguments, **options):
            nonlocal seen
            seen += 1
            if seen == step:
                if call is os_write and len(arguments[1]) > 1:
                    os_write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)
        return run
    os_write = os.write
    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))

for step in range(1, STEPS_MAX):
    directory = Path(sys.argv[1], f"step-{{step:03d}}")
    directory.mkdir()
    prepare(directory)
    child = os.fork()
    if child == 0:
        die_at(step)
        act(directory)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    assert os.WTERMSIG(status) == signal.SIGKILL, status
sys.exit("more steps than the test allows for")
"""


@pytest.fixture
def crash_at_every_step(tmp_path: Path) -> Callable[[str], list[Path]]:
    """Run `act(directory)` of the source in one process per step, killed with SIGKILL there.

    The source also defines `prepare(directory)`, which runs unharmed. Steps are
    calls to the file system; a write is cut in half before the kill. Returns
    the directory of each run, in order; only the last one ran to its end.
    """

    def run(source: str) -> list[Path]:
        top = tmp_path / "crashes"
        top.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", CRASHER.format(source=source), str(top)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return sorted(top.iterdir())

    return run
