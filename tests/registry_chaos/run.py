"""One run: four processes that move an alias, three that serve it, two that collect; kill -9."""

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from chaos.history import Event, read_history
from registry_chaos.mover import ALIAS, MODEL, VERSIONS
from registry_chaos.sweeper import tensors_of

from pliska.coordinator.registry import (
    EndedOperation,
    HistoryEntry,
    PromoteRequest,
    Registry,
    State,
)
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import Backend, connect

TESTS = Path(__file__).parents[1]
MOVERS = 4
NODES = 3
SWEEPERS = 2
KILL_EVERY_S = (0.2, 1.5)
END_TIMEOUT_S = 60.0


@dataclass
class Run:
    """What is left when everybody has come to rest.

    Attributes:
        history: All moves of the alias, verified by reading them.
        ended: How each operation ended.
        events: What the processes wrote down.
        gone: Versions that were removed.
        damage: What is missing or damaged of the others, every byte read.
        kills: How many were killed.
    """

    history: tuple[HistoryEntry, ...]
    ended: tuple[EndedOperation, ...]
    events: list[Event]
    gone: frozenset[int] = frozenset()
    damage: tuple[str, ...] = ()
    kills: int = 0


@dataclass
class _Child:
    """A process that is started again when it is killed."""

    arguments: list[list[str]]
    starts: "itertools.count[int]" = field(default_factory=itertools.count)
    process: "subprocess.Popen[str] | None" = None

    def start(self) -> None:
        module, *rest = self.arguments[min(next(self.starts), len(self.arguments) - 1)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *rest],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        """Let it come to its end, which has to be soon: nothing may hang."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(END_TIMEOUT_S) == 0
        finally:
            self.process.kill()
            self._reap()

    def _reap(self) -> None:
        assert self.process is not None
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def run(address: str, folder: Path, seed: int, length_s: float, lease_s: float) -> Run:
    """Let them move the alias for so long, killing one after the other; then let them rest."""
    with closing(connect(address)) as backend:
        return _run(backend, address, folder, seed, length_s, lease_s)


def _run(
    backend: Backend, address: str, folder: Path, seed: int, length_s: float, lease_s: float
) -> Run:
    chance = random.Random(seed)
    artifacts, history = folder / "artifacts", folder / "history"
    registry = Registry(backend, LocalStorage(artifacts))
    for number in range(1, VERSIONS + 1):
        registry.register(MODEL, tensors_of(number), actor="ann")
    registry.promote(PromoteRequest(model=MODEL, alias=ALIAS, version=1, actor="ann", op_id="1st"))
    shared = [address, str(artifacts), str(history)]
    movers = [
        _Child([["registry_chaos.mover", *shared, str(seed * 1000 + number + 100 * life)]
                for life in range(100)])
        for number in range(MOVERS)
    ]  # fmt: skip
    nodes = [
        _Child([["registry_chaos.node", *shared, str(folder / name), name, str(lease_s)]])
        for name in (f"n{number}" for number in range(NODES))
    ]
    sweepers = [
        _Child([["registry_chaos.sweeper", *shared, str(seed * 1000 + number + 100 * life)]
                for life in range(100)])
        for number in range(SWEEPERS)
    ]  # fmt: skip
    children = [*movers, *nodes, *sweepers]
    for child in children:
        child.start()
    for child in children:
        child.wait_until_ready()
    kills, until_s = 0, time.monotonic() + length_s
    while (pause_s := chance.uniform(*KILL_EVERY_S)) < until_s - time.monotonic():
        time.sleep(pause_s)
        victim = chance.choice(children)
        victim.kill()
        victim.start()
        kills += 1
    for child in (*movers, *sweepers):
        child.stop()
    _settle(registry)
    for node in nodes:
        node.stop()
    inspection = registry.inspector(reads_every_byte=True).inspect()
    return Run(
        history=registry.log(MODEL, ALIAS),
        ended=registry.ended(MODEL, ALIAS),
        events=read_history(history),
        gone=frozenset(
            version.version
            for version in registry.versions(MODEL)
            if version.state is State.DELETED
        ),
        damage=tuple(f"{problem.place}: {problem.what}" for problem in inspection.problems),
        kills=kills,
    )


def _settle(registry: Registry) -> None:
    """Finish what the dead left open (I8), and wait until every node follows."""
    pause = threading.Event()
    for _ in range(int(END_TIMEOUT_S / 0.1)):
        situation = registry.situation(MODEL, ALIAS)
        if situation.operation is not None:
            registry.operations("undertaker").resume(situation.operation.record.op_id)
        elif situation.is_settled and len(situation.nodes) == NODES:
            return
        pause.wait(0.1)
    raise AssertionError(f"it does not come to rest: {registry.situation(MODEL, ALIAS)}")
