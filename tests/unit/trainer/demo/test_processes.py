"""Real processes: what starts also ends, however the demonstration ends."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pliska.trainer.demo import processes
from pliska.trainer.demo.errors import ProcessError
from pliska.trainer.demo.memory import MemoryPeak, proportional_bytes
from pliska.trainer.demo.processes import Processes

SHELL = Path("/bin/sh")
DEADLINE_S = 20.0


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "this did not happen in time"
        time.sleep(0.01)


async def test_process_runs_the_command_and_its_output_is_in_the_log(tmp_path: Path) -> None:
    async with Processes(SHELL, tmp_path / "logs") as running:
        child = await running.start("one", ["-c", "echo out; echo err >&2"])
        await running.ended_well(child)
    assert child.log == tmp_path / "logs" / "one.log"
    assert child.log.read_text() == "out\nerr\n"
    assert not child.is_running


async def test_output_is_what_was_printed_and_messages_are_in_the_log(tmp_path: Path) -> None:
    async with Processes(SHELL, tmp_path) as running:
        assert await running.output("one", ["-c", "echo data; echo message >&2"]) == b"data\n"
        with pytest.raises(ProcessError, match=r"two ended with exit code 4.*\n?no such alias"):
            await running.output("two", ["-c", "echo no such alias >&2; exit 4"])
    assert (tmp_path / "one.log").read_text() == "message\n"


async def test_failure_names_the_process_its_code_and_the_end_of_its_log(tmp_path: Path) -> None:
    async with Processes(SHELL, tmp_path) as running:
        child = await running.start("bad", ["-c", "echo this is why; exit 3"])
        with pytest.raises(ProcessError, match=r"bad ended with exit code 3.*\n?this is why"):
            await running.ended_well(child)


async def test_death_by_an_unexpected_signal_is_a_failure(tmp_path: Path) -> None:
    async with Processes(SHELL, tmp_path) as running:
        child = await running.start("bad", ["-c", "kill -SEGV $$"])
        with pytest.raises(ProcessError, match="bad ended by signal SIGSEGV"):
            await running.ended_well(child)


async def test_process_that_was_killed_from_here_did_not_fail(tmp_path: Path) -> None:
    async with Processes(SHELL, tmp_path) as running:
        child = await running.start("leader", ["-c", "sleep 60"])
        await running.kill(child)
        await running.ended_well(child)
        assert child.process.returncode == -signal.SIGKILL
        assert running.running_pids() == []


async def test_tail_of_a_long_log_is_its_end(tmp_path: Path) -> None:
    async with Processes(SHELL, tmp_path) as running:
        script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done"
        child = await running.start("long", ["-c", script])
        await running.ended_well(child)
    assert child.tail().endswith("line 1999")
    assert len(child.tail()) <= processes.TAIL_BYTES


async def test_leaving_the_block_by_an_error_ends_all(tmp_path: Path) -> None:
    children = []
    with pytest.raises(RuntimeError):  # noqa: PT012 - the block is what is tested
        async with Processes(SHELL, tmp_path) as running:
            children += [await running.start(name, ["-c", "sleep 60"]) for name in "abc"]
            raise RuntimeError
    assert len(children) == 3
    assert not any(is_alive(child.pid) for child in children)


async def test_process_that_ignores_sigterm_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_GRACE_S", 0.1)
    async with Processes(SHELL, tmp_path) as running:
        child = await running.start(
            "stubborn", ["-c", "trap '' TERM; sleep 60 & echo $!; wait; sleep 60"]
        )
        await asyncio.to_thread(wait_until, lambda: "\n" in child.log.read_text())
    grandchild = int(child.log.read_text())
    assert child.process.returncode == -signal.SIGKILL
    wait_until(lambda: not is_alive(grandchild))


async def test_name_is_used_once(tmp_path: Path) -> None:
    async with Processes(SHELL, tmp_path) as running:
        await running.start("one", ["-c", "true"])
        with pytest.raises(ProcessError, match="already a process named one"):
            await running.start("one", ["-c", "true"])


async def test_command_that_does_not_exist_fails_with_its_name(tmp_path: Path) -> None:
    async with Processes(tmp_path / "missing", tmp_path) as running:
        child = await running.start("one", [])
        with pytest.raises(ProcessError, match="missing cannot be run: No such file"):
            await running.ended_well(child)


PARENT = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from pliska.trainer.demo.processes import Processes

    async def main():
        async with Processes(Path("/bin/sh"), Path(sys.argv[1])) as running:
            for name in ("a", "b"):
                child = await running.start(name, ["-c", "echo ready; exec sleep 60"])
                print(child.pid, flush=True)
            await running.ended_well(child)

    asyncio.run(main())
    """
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_survives_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, and even kill -9 of the parent, leave nothing behind."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        for name in ("a", "b"):
            wait_until(lambda name=name: "ready" in (tmp_path / f"{name}.log").read_text())
        assert all(is_alive(pid) for pid in pids)
        parent.send_signal(number)
        parent.wait(DEADLINE_S)
    wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_memory_counts_what_a_process_takes_and_nothing_for_one_that_is_gone() -> None:
    mine = proportional_bytes([os.getpid()])
    assert mine > 1024 * 1024
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert proportional_bytes([ended.pid]) == 0


def test_memory_peak_only_grows() -> None:
    peak = MemoryPeak()
    peak.look([os.getpid()])
    seen = peak.bytes_max
    peak.look([])
    assert peak.bytes_max == seen > 0
