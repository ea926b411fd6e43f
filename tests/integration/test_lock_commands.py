"""`pliska lock` as people run it: real processes that are signalled, killed and robbed of locks."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pliska.locks import Backend, Mutex, ReadWriteLock, Session, break_lock, lock_queue
from pliska.locks.commands import LOST_EXIT_CODE
from services.commands import EXECUTABLE, Start
from services.waiting import wait_until

NAP = [sys.executable, "-c", "print('runs', flush=True); import time; time.sleep(60)"]

GROUP = "lock"


def end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def document(start: Start, *arguments: str) -> Any:
    code, out, err = end(start(*arguments, "-o", "json"))
    assert (code, err) == (0, "")
    return json.loads(out)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_runs_with_its_token_and_its_exit_code_is_ours(
    start: Start, backend: Backend
) -> None:
    program = "import os, sys; print(os.environ['PLISKA_LOCK_TOKEN'], sys.argv[1:]); sys.exit(7)"
    tokens = []
    for _ in range(2):
        command = [sys.executable, "-c", program, "--flag", "a b; $HOME"]
        code, out, err = end(start("run", "m", "--timeout", "5", "--", *command))
        assert (code, err) == (7, "")
        token, _, arguments = out.strip().partition(" ")
        assert arguments == "['--flag', 'a b; $HOME']"
        tokens.append(int(token))
    assert tokens[0] < tokens[1]
    assert lock_queue(backend, "m") == ()


def test_the_exit_code_says_why_nothing_ran(start: Start, tmp_path: Path) -> None:
    holder = start("run", "m", "--", *NAP)
    assert line(holder) == "runs\n"
    code, out, err = end(start("run", "m", "--timeout", "0.1", "--", "true"))
    assert (code, out, err.count("\n")) == (6, "", 1)
    assert "did not come free in time" in err
    code, _, err = end(start("run", "other", "--", "./no-such-command"))
    assert (code, "No such file" in err) == (127, True)
    (tmp_path / "data").write_text("")
    code, _, err = end(start("run", "other", "--", "./data"))
    assert (code, "Permission denied" in err) == (126, True)
    assert end(start("run", "m"))[0] == 2
    assert end(start("run", "m", "--store", "nowhere:x", "--", "true"))[0] == 2
    end_by_signal = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert end(start("run", "other", "--", *end_by_signal))[0] == 128 + signal.SIGKILL


def test_shared_runs_go_together_and_exclude_the_others(start: Start) -> None:
    readers = [start("run", "m", "--shared", "--", *NAP) for _ in range(2)]
    assert [line(reader) for reader in readers] == ["runs\n", "runs\n"]
    assert end(start("run", "m", "--timeout", "0.1", "--", "true"))[0] == 6
    (summary,) = document(start, "list")["locks"]
    assert (summary["name"], summary["mode"]) == ("m", "shared")
    assert (summary["holders"], summary["waiting"]) == (2, 0)


def test_a_killed_holders_command_dies_with_it_and_the_next_gets_the_lock(
    start: Start, backend: Backend
) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    holder = start("run", "m", "--", sys.executable, "-c", program)
    child_pid = int(line(holder))
    waiter = start("run", "m", "--timeout", "20", "--", "true")
    wait_until(lambda: len(lock_queue(backend, "m")) == 2)
    holder.kill()
    assert end(waiter)[0] == 0
    wait_until(lambda: not is_alive(child_pid))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_passed_on_and_the_commands_answer_counts(
    start: Start, backend: Backend, number: signal.Signals
) -> None:
    program = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('bye', flush=True), sys.exit(5)))\n"
        "print('runs', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = start("run", "m", "--", sys.executable, "-c", program)
    assert line(process) == "runs\n"
    process.send_signal(number)
    assert end(process) == (5, "bye\n", "")
    assert lock_queue(backend, "m") == ()


def test_a_signal_ends_the_wait_and_leaves_nothing_behind(start: Start, backend: Backend) -> None:
    with Session.open(backend) as session, Mutex(session, "m").hold():
        waiter = start("run", "m", "--", "true")
        wait_until(lambda: len(lock_queue(backend, "m")) == 2)
        waiter.send_signal(signal.SIGTERM)
        assert end(waiter) == (128 + signal.SIGTERM, "", "")
        assert len(lock_queue(backend, "m")) == 1


def test_a_command_whose_lock_is_broken_is_killed(start: Start, backend: Backend) -> None:
    holder = start("run", "m", "--", *NAP)
    assert line(holder) == "runs\n"
    (contender,) = lock_queue(backend, "m")
    wrong, right = str(contender.token + 1), str(contender.token)
    message = f"error: nobody holds the lock 'm' with token {wrong}: nothing was broken\n"
    assert end(start("break", "m", "--token", wrong)) == (3, "", message)
    (broken,) = document(start, "break", "m", "--token", right)["broken"]
    assert broken["token"] == contender.token
    code, _, err = end(holder)
    assert code == LOST_EXIT_CODE
    assert "the command was killed" in err


def test_a_command_that_does_not_heed_sigterm_is_killed_all_the_same(
    start: Start, backend: Backend
) -> None:
    stubborn = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('runs', flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = start("run", "m", "--", sys.executable, "-c", stubborn)
    assert line(holder) == "runs\n"
    break_lock(backend, "m")
    assert end(holder)[0] == LOST_EXIT_CODE


def test_a_command_may_run_on_with_a_warning(
    start: Start, backend: Backend, tmp_path: Path
) -> None:
    program = (
        "import pathlib, time\n"
        "print('runs', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    )
    command = ["run", "m", "--on-lost", "warn", "--", sys.executable, "-c", program]
    holder = start(*command)
    assert line(holder) == "runs\n"
    assert len(break_lock(backend, "m")) == 1
    assert holder.stderr is not None
    assert "was lost; the command runs on" in holder.stderr.readline()
    (tmp_path / "go").touch()
    assert end(holder) == (0, "", "")


def test_who_holds_and_who_waits_is_shown_as_a_table(start: Start, backend: Backend) -> None:
    with Session.open(backend) as session, ReadWriteLock(session, "a/b").read.hold() as grant:
        waiter = start("run", "a/b", "--", "true")
        wait_until(lambda: len(lock_queue(backend, "a/b")) == 2)
        code, out, err = end(start("show", "a/b"))
        assert (code, err) == (0, "")
        header, holds, waits = out.splitlines()
        assert header.split() == ["STATE", "MODE", "TOKEN", "OWNER", "SESSION"]
        assert holds.split()[:3] == ["holds", "shared", str(grant.token)]
        assert f"pid {os.getpid()}" in holds
        assert waits.split()[:2] == ["waits", "exclusive"]
        assert f"pid {waiter.pid}" in waits
        assert "a/b" in end(start("list"))[1]
    assert end(waiter)[0] == 0
    assert document(start, "show", "a/b")["contenders"] == []


def test_the_command_has_the_terminal_while_it_runs(tmp_path: Path, address: str) -> None:
    program = "print('got', input())"
    arguments = ["pliska", "lock", "run", "m", "--", sys.executable, "-c", program]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(EXECUTABLE, arguments, {**os.environ, "PLISKA_STORE": address})  # noqa: S606
    output = b""
    os.write(terminal, b"typed\n")
    while b"got typed" not in output:
        assert select.select([terminal], [], [], 20)[0], output
        output += os.read(terminal, 1024)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
