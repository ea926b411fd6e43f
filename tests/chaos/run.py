"""One run: processes that use locks as planned, faults among them, and the history of it all."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from chaos.actor import GUARDED, SEMAPHORE_SIZE, Actor
from chaos.history import Event, Recorder, now_s, read_history
from chaos.schedule import Fault, Plan, plan

from pliska.locks import Backend, ConflictError, break_lock, connect, resize_semaphore

TESTS = Path(__file__).parents[1]
SIZES = (1, 2, 3)
END_TIMEOUT_S = 20.0


class Stage:
    """What faults need: the store as an administrator sees it, and the history."""

    def __init__(self, address: str, history: Path, the_plan: Plan) -> None:
        self._random = random.Random(the_plan.seed)
        self._recorder = Recorder(history, "administrator")
        self._backend: Backend = connect(address)
        for recipe in ("mutex", "write", "leader"):
            with contextlib.suppress(ConflictError):
                self._backend.create(f"{GUARDED}/{recipe}", b"")
        self.resize(SEMAPHORE_SIZE)

    def break_one(self) -> None:
        """Take a lock from its holders, as an administrator does."""
        name = self._random.choice(("m", "rw"))
        from_s = now_s()
        tokens = [each.token for each in break_lock(self._backend, name)]
        self.record("broken", name=f"locks/{name}", tokens=tokens, from_s=from_s, to_s=now_s())

    def resize(self, size: int | None = None) -> None:
        """Change the semaphore's size."""
        size = size or self._random.choice(SIZES)
        from_s = now_s()
        resize_semaphore(self._backend, "s", size)
        self.record("resized", name="semaphores/s", size=size, from_s=from_s, to_s=now_s())

    def record(self, kind: str, **fields: object) -> None:
        self._recorder.record(kind, **fields)

    def close(self) -> None:
        self._backend.close()
        self._recorder.close()


class Process:
    """One actor in a process of its own; another one takes its place when it is killed."""

    def __init__(self, arguments: list[str], stage: Stage) -> None:
        self._arguments = arguments
        self._stage = stage
        self._start()

    def suffer(self, fault: Fault) -> None:
        """Do to it what the fault says."""
        from_s = now_s()
        if fault.kind == "pause":
            self._process.send_signal(signal.SIGSTOP)
            time.sleep(fault.length_s)
            self._process.send_signal(signal.SIGCONT)
            self._record("paused", from_s, to_s=now_s())
        elif fault.kind == "kill":
            self._process.kill()
            self._process.wait()
            self._record("killed", from_s)
            self._close_pipes()
            self._start()
        else:
            assert self._process.stdin is not None
            self._process.stdin.write("end session\n")
            self._process.stdin.flush()

    def stop(self) -> None:
        """Let it come to its end, which has to be soon: nothing may hang."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(END_TIMEOUT_S) == 0
        finally:
            self._process.kill()
            self._process.wait()
            self._close_pipes()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.actor", *self._arguments],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def _record(self, kind: str, from_s: float, **fields: object) -> None:
        victim = f"process {self._arguments[-1]} pid {self._process.pid}"
        self._stage.record(kind, victim=victim, from_s=from_s, **fields)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Threads:
    """One actor among the threads of this process: for a store that lives in it."""

    def __init__(self, actor: Actor, recorder: Recorder, plan_: Plan, number: int) -> None:
        self._actor = actor
        self._recorder = recorder
        self._threads = [
            threading.Thread(target=actor.work, args=(turns,)) for turns in plan_.turns[number]
        ]
        self._threads.append(threading.Thread(target=actor.observe))
        for thread in self._threads:
            thread.start()

    def suffer(self, fault: Fault) -> None:
        """End its session: a thread cannot be stopped or killed."""
        assert fault.kind in ("pause", "kill", "end")
        self._actor.end_session()

    def stop(self) -> None:
        """Let it come to its end, which has to be soon: nothing may hang."""
        self._actor.close()
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)
            assert not thread.is_alive()
        self._recorder.close()


def run_processes(
    address: str, history: Path, seed: int, lease_s: float, length_s: float
) -> list[Event]:
    """Play the plan of `seed` with processes, and return what they wrote down."""
    processes, threads = 3, 3
    the_plan = plan(seed, processes, threads, length_s, lease_s)
    stage = Stage(address, history, the_plan)
    shape = [address, history, seed, processes, threads, length_s, lease_s]
    actors = [Process([*map(str, shape), str(number)], stage) for number in range(processes)]
    for actor in actors:
        actor.wait_until_ready()
    return _play(the_plan, stage, actors, history)


def run_threads(
    address: str, history: Path, seed: int, lease_s: float, length_s: float
) -> list[Event]:
    """Play the plan of `seed` with threads of this process, each group with a session."""
    groups, threads = 4, 2
    the_plan = plan(seed, groups, threads, length_s, lease_s)
    stage = Stage(address, history, the_plan)
    actors = []
    for number in range(groups):
        recorder = Recorder(history, f"group {number}")
        actors.append(
            Threads(Actor(connect(address), recorder, lease_s), recorder, the_plan, number)
        )
    return _play(the_plan, stage, actors, history)


def _play(
    the_plan: Plan, stage: Stage, actors: "list[Process] | list[Threads]", history: Path
) -> list[Event]:
    started_s = now_s()
    try:
        for fault in the_plan.faults:
            time.sleep(max(0.0, started_s + fault.at_s - now_s()))
            if fault.kind == "break":
                stage.break_one()
            elif fault.kind == "resize":
                stage.resize()
            else:
                actors[fault.victim].suffer(fault)
        time.sleep(max(0.0, started_s + the_plan.length_s - now_s()))
    finally:
        for actor in actors:
            actor.stop()
        stage.close()
    return read_history(history)
