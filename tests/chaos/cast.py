"""The actors of a run and what can be done to them: processes, or threads of this one.

Processes are forked from one that has imported everything, so that a run costs
little; that one has no threads and no connections that a child could inherit.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Protocol

import pytest
from chaos.actor import Actor, play, stacks_file
from chaos.history import Recorder, now_s
from chaos.line import Line
from chaos.schedule import Fault, FaultKind, Plan

from services.process import wait_until_stopped

TESTS = Path(__file__).parents[1]
END_TIMEOUT_S = 60.0
"""Nothing may hang: whoever is told to end has to, even on a busy machine."""
STACKS_S = 1.0
IMPORTED = (
    "chaos.actor",
    "pliska.locks.backends.consul",
    "pliska.locks.backends.embedded",
    "pliska.locks.backends.zookeeper_feed",
)
_one_at_a_time = threading.Lock()
"""To start a process looks after all others, and two who look at one mistake its end."""


class Member(Protocol):
    """One actor."""

    def suffer(self, fault: Fault) -> None:
        """Do to it what the fault says."""

    def stop(self) -> None:
        """Let it come to its end, which has to be soon: nothing may hang."""


class Process:
    """One actor in a process of its own; another one takes its place when it is killed."""

    def __init__(
        self, address: str, history: Path, the_plan: Plan, number: int, administrator: Recorder
    ) -> None:
        self._line = Line(address, the_plan, number)
        self._arguments = (self._line.address, history, the_plan, number)
        self._history = history
        self._number = number
        self._administrator = administrator
        self._start()

    def wait_until_ready(self) -> None:
        assert self._commands.recv() == "ready"

    def suffer(self, fault: Fault) -> None:
        from_s = now_s()
        match fault.kind:
            case FaultKind.PAUSE:
                os.kill(self._pid, signal.SIGSTOP)
                wait_until_stopped(self._pid)
                time.sleep(fault.length_s)
                os.kill(self._pid, signal.SIGCONT)
                self._record("paused", from_s, to_s=now_s())
            case FaultKind.KILL:
                self._kill()
                self._record("killed", from_s)
                self._commands.close()
                self._start()
            case FaultKind.STEAL:
                self._commands.send("be robbed")
            case FaultKind.BLACKHOLE:
                self._line.blackhole(fault.length_s)
                self._record("cut off", from_s, to_s=now_s())
            case _:
                assert fault.kind is FaultKind.RESET, fault
                self._line.reset()
                self._record("cut off", from_s, to_s=now_s())

    def stop(self) -> None:
        self._commands.close()
        try:
            ended_with = self._wait(END_TIMEOUT_S)
            if ended_with is None:
                os.kill(self._pid, signal.SIGUSR1)
                time.sleep(STACKS_S)
                stacks = stacks_file(self._history, self._number).read_text(encoding="utf-8")
                raise AssertionError(f"{self._name} does not end:\n{stacks}")
            assert ended_with == 0, f"{self._name} ended with {ended_with}"
        finally:
            self._kill()
            self._line.close()

    @property
    def _pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def _name(self) -> str:
        return f"process {self._number} pid {self._pid}"

    def _start(self) -> None:
        self._commands, others_end = nursery().Pipe()
        self._process = nursery().Process(target=play, args=(*self._arguments, others_end))
        with _one_at_a_time:
            self._process.start()
        others_end.close()

    def _wait(self, timeout_s: float) -> int | None:
        """What it ended with; None when it has not."""
        wait([self._process.sentinel], timeout_s)
        with _one_at_a_time:
            return self._process.exitcode

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._wait(END_TIMEOUT_S)

    def _record(self, kind: str, from_s: float, **fields: object) -> None:
        self._administrator.record(kind, victim=self._name, from_s=from_s, **fields)


class Threads:
    """One actor among the threads of this process: for a store that lives in it."""

    def __init__(self, address: str, history: Path, the_plan: Plan, number: int) -> None:
        self._recorder = Recorder(history, f"group {number}")
        self._actor = Actor(address, self._recorder, the_plan.shape.lease_s)
        self._threads = [
            threading.Thread(target=self._actor.work, args=(turns,))
            for turns in the_plan.turns[number]
        ]
        self._threads.append(threading.Thread(target=self._actor.observe))
        for thread in self._threads:
            thread.start()

    def suffer(self, fault: Fault) -> None:
        assert fault.kind is FaultKind.STEAL, "a thread cannot be stopped or killed"
        self._actor.be_robbed()

    def stop(self) -> None:
        self._actor.close()
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)
            assert not thread.is_alive()
        self._recorder.close()


@cache
def nursery() -> ForkServerContext:
    """Where processes are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with pytest.MonkeyPatch.context() as patch:
        # What it imports it finds by its environment alone.
        patch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
        forkserver.ensure_running()
    return context
