"""How soon a hundred serving nodes know that an alias moved.

    make bench BENCH=registry_aliases ARGS="--rounds 20"

The nodes are `ServedModel`s in processes of their own on one embedded store, ten in
each. A move is timed from just before its transaction is sent until the last node
serves the new generation, by the clock that all processes of one boot share.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from report import Figure, figure, show

from pliska.coordinator.registry import PromoteRequest, Registry, ServedModel, Tensor, Wait
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import Backend, SystemClock, connect

MODEL, ALIAS = "bench", "prod"
NODES = 100
PROCESSES = 10
KNOWN_MS_MAX = 200.0
SETTLE_S = 1.0
"""Between moves: the nodes have shown that they serve the last one."""

_clock = SystemClock()


class Stamped:
    """A store that notes when the transaction was sent that moved an alias last."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.sent_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def transact(self, checks: Any, changes: Any, **more: Any) -> Any:
        if any("/history/" in change.key for change in changes):
            self.sent_s = _clock.now_s()
        return self._inner.transact(checks, changes, **more)


def serve_here(address: str, folder: str, first: int, count: int) -> None:
    """Be one of the processes: serve as so many nodes, and say when each generation came."""
    with ExitStack() as stack:
        backend = stack.enter_context(closing(connect(address)))
        registry = Registry(backend, LocalStorage(Path(folder) / "artifacts"))
        nodes = [
            stack.enter_context(
                ServedModel.open(
                    registry, MODEL, ALIAS, load=lambda loaded: loaded.version.version,
                    state=Path(folder) / f"state-{number}", node=f"n{number}",
                )
            )
            for number in range(first, first + count)
        ]  # fmt: skip
        print("ready", flush=True)
        for line in sys.stdin:
            gen, came_s = int(line), []

            def wait(node: ServedModel[int], gen: int = gen, came_s: list[float] = came_s) -> None:
                assert node.wait_for_gen(gen, 60.0)
                came_s.append(_clock.now_s())

            waiting = [threading.Thread(target=wait, args=(node,)) for node in nodes]
            for thread in waiting:
                thread.start()
            print("waiting", flush=True)
            for thread in waiting:
                thread.join()
            print(json.dumps(came_s), flush=True)


def figures(rounds: int) -> list[Figure]:
    """Move the alias so often, and time when the nodes know it."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = f"embedded:{folder}/store"
        backend = Stamped(stack.enter_context(closing(connect(address))))
        registry = Registry(backend, LocalStorage(Path(folder) / "artifacts"))  # type: ignore[arg-type]
        for number in (1, 2):
            tensor = Tensor.of_bytes("F32", (1,), struct.pack("<f", number))
            registry.register(MODEL, {"a": tensor}, actor="bench")
        gen = registry.promote(request(1)).gen
        each = NODES // PROCESSES
        children = [
            subprocess.Popen(
                [sys.executable, __file__, "--serve", address, folder, str(first), str(each)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for first in range(0, NODES, each)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        last_ms, median_ms = [], []
        for number in range(rounds):
            gen += 1
            for child in children:
                assert child.stdin is not None
                child.stdin.write(f"{gen}\n")
                child.stdin.flush()
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == "waiting\n"
            threading.Event().wait(SETTLE_S)
            registry.promote(request(2 - number % 2))
            came_s = sorted(
                at_s
                for child in children
                if child.stdout is not None
                for at_s in json.loads(child.stdout.readline())
            )
            assert len(came_s) == NODES
            last_ms.append(1000 * (came_s[-1] - backend.sent_s))
            median_ms.append(1000 * (came_s[NODES // 2] - backend.sent_s))
        for child in children:  # to say goodbye, node after node, would take minutes
            child.kill()
            child.communicate()
    return [
        figure(f"embedded: the last of {NODES} nodes serves a moved alias after", last_ms, "ms",
               f"<= {KNOWN_MS_MAX:g}", lambda v: v <= KNOWN_MS_MAX),
        figure(f"embedded: half of {NODES} nodes serve it after", median_ms, "ms"),
    ]  # fmt: skip


def request(version: int) -> PromoteRequest:
    """A move that waits for nobody: what is timed includes that the nodes load the version."""
    return PromoteRequest(model=MODEL, alias=ALIAS, version=version, actor="bench", wait=Wait.NONE)


def main() -> None:
    """Measure, or be one of the serving processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--serve", nargs=4, metavar=("ADDRESS", "FOLDER", "FIRST", "COUNT"))
    parser.add_argument(
        "--output", type=Path, default=Path("benchmarks/results/registry_aliases.json")
    )
    options = parser.parse_args()
    if options.serve:
        address, folder, first, count = options.serve
        serve_here(address, folder, int(first), int(count))
        return
    show("Aliases", figures(options.rounds), options.output)


if __name__ == "__main__":
    main()
