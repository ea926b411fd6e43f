"""Registers new versions, pins some, and collects the garbage among those who move the alias.

Run as a process: python -m registry_chaos.sweeper ADDRESS ARTIFACTS HISTORY SEED
"""

import contextlib
import random
import struct
import sys
import threading
from datetime import timedelta
from pathlib import Path

from chaos.history import Recorder, now_s
from registry_chaos.mover import ALIAS, MODEL

from pliska.coordinator.registry import Registry, RegistryError, Retention, State, Tensor, sweeps
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import LockError, connect

KEEP_LAST = 4
HISTORY = 3
"""So many of the newest moves keep what they pointed at."""
ANNOUNCED_FOR = timedelta(seconds=5)
MARGIN = timedelta(seconds=3)
"""Shorter than in production: whoever is killed in a sweep holds all others up for so long."""


def tensors_of(number: int) -> dict[str, Tensor]:
    """Return a model that shares a tensor with all others, and one with every third."""
    return {
        "head": Tensor.of_bytes("F32", (2,), struct.pack("<2f", number, -number)),
        "neck": Tensor.of_bytes("F32", (1,), struct.pack("<f", number % 3)),
        "frozen": Tensor.of_bytes("F32", (1,), struct.pack("<f", 0.5)),
    }


class Sweeper:
    """One process's part."""

    def __init__(self, registry: Registry, recorder: Recorder, seed: int) -> None:
        self._registry = registry
        self._recorder = recorder
        self._random = random.Random(seed)
        self._keep = registry.housekeeping(f"sweeper-{seed}")

    def turn(self) -> None:
        """Do one of the three."""
        act = self._random.choice((self._register, self._pin, self._collect, self._collect))
        with contextlib.suppress(RegistryError, LockError):  # what was not done needs no record
            act()

    def _register(self) -> None:
        number = self._random.randrange(2**20)
        self._registry.register(MODEL, tensors_of(number), actor="ann")

    def _pin(self) -> None:
        versions = self._registry.versions(MODEL)
        version = self._random.choice([v for v in versions if v.state is State.READY]).version
        if version in {pin.version for pin in self._registry.pins(MODEL)}:
            self._recorder.record("unpinning", version=version)
            self._keep.unpin(MODEL, version)
        elif len(self._registry.pins(MODEL)) < 3:
            self._keep.pin(MODEL, version, "chaos")
            self._recorder.record("pinned", version=version)

    def _collect(self) -> None:
        gens, began_s = [self._gen()], now_s()
        collected = self._keep.collect(Retention(keep_last=KEEP_LAST, history=HISTORY))
        ended_s = now_s()
        self._recorder.record(
            "collected",
            removed=[fate.version.version for fate in collected.fates if fate.reason is None],
            files=len(collected.files),
            gens=[*gens, self._gen()],
            from_s=began_s,
            to_s=ended_s,
        )

    def _gen(self) -> int:
        return self._registry.situation(MODEL, ALIAS).gen


def main(arguments: list[str]) -> None:
    """Take turns until the end of the input."""
    address, artifacts, history, seed = arguments
    sweeps.ANNOUNCED_FOR, sweeps.MARGIN = ANNOUNCED_FOR, MARGIN
    recorder = Recorder(Path(history), f"sweeper {seed}")
    registry = Registry(connect(address), LocalStorage(Path(artifacts)))
    sweeper, has_ended = Sweeper(registry, recorder, int(seed)), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), has_ended.set()), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not has_ended.is_set():
        sweeper.turn()
        has_ended.wait(0.05)


if __name__ == "__main__":
    main(sys.argv[1:])
