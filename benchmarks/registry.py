"""Registering and loading a model, against a plain save of its file and SHA-256 of the same bytes.

    make bench BENCH=registry ARGS="--rounds 5 --mib 1024"

Every round does each thing once on fresh files, every other one ours first, and ratios
are taken within a round, so that whatever else the machine does weighs on all alike. The
plain save is `safetensors`' own: from memory to a file that is not synced; a
registration is durable when it is over, so a save with fsync is shown beside it.
"""

import argparse
import gc
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from report import Figure, figure, show
from safetensors.numpy import load_file, save_file

from pliska.coordinator.registry import Reference, Registry, Tensor
from pliska.coordinator.storage.storage import LocalStorage
from pliska.locks import connect

MODEL = "bench"
LAYERS = 20
SHARED = 0.9
RATIO_MAX = 1.3
STORED_MAX = 0.11
"""A tenth, and the manifest."""

Arrays = Mapping[str, NDArray[np.uint8]]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return how many seconds the work took, and how many of processors' time."""
    gc.collect()
    begin, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - busy


class Round:
    """One round: everything once, in a folder of its own."""

    def __init__(self, folder: Path, arrays: Arrays) -> None:
        self._folder = folder
        self._arrays = arrays
        self._file = folder / "plain.safetensors"
        self._storage = folder / "artifacts"
        self.seconds: dict[str, float] = {}
        self.busy: dict[str, float] = {}
        self.stored = 0.0

    def run(self, changed: Arrays, *, is_plain_first: bool) -> None:
        """Do and time everything; `changed` replaces a tenth of the tensors."""
        with closing(connect(f"embedded:{self._folder / 'store'}")) as backend:
            registry = Registry(backend, LocalStorage(self._storage))
            if is_plain_first:
                self._plain()
                self._ours(registry)
            else:
                self._ours(registry)
                self._plain()
            before = stored_bytes(self._storage)
            self._time("next", lambda: register(registry, {**self._arrays, **changed}))
            self.stored = stored_bytes(self._storage) / before - 1
        with closing(connect(f"embedded:{self._folder / 'other'}")) as backend:
            registry = Registry(backend, LocalStorage(self._folder / "from-file"))
            path = self._file
            self._time("register file", lambda: registry.register_file(MODEL, path, actor="bench"))

    def _plain(self) -> None:
        self._time("save", lambda: save_file(dict(self._arrays), self._file))
        self._time("hash", lambda: plain_hash(self._arrays))
        self._time("sync", lambda: sync(self._file))
        self._time("plain load", lambda: plain_hash(load_file(self._file)))

    def _ours(self, registry: Registry) -> None:
        self._time("register", lambda: register(registry, self._arrays))
        self._time("load", lambda: registry.load(Reference(MODEL)))

    def ratio(self, *names: str) -> float:
        """Return what these took together, against a plain save and hash."""
        return ratio(self.seconds, names)

    def both(self) -> float:
        """Return registering and loading against the plain way of both."""
        plain_s = self.seconds["save"] + self.seconds["hash"] + self.seconds["plain load"]
        return (self.seconds["register"] + self.seconds["load"]) / plain_s

    def busy_ratio(self, *names: str) -> float:
        """Return the same of processors' time, which says the work whatever else runs."""
        return ratio(self.busy, names)

    def _time(self, name: str, work: Callable[[], object]) -> None:
        self.seconds[name], self.busy[name] = timed(work)


def ratio(seconds: Mapping[str, float], names: Sequence[str]) -> float:
    """Return what these took together, against a plain save and hash."""
    return sum(seconds[name] for name in names) / (seconds["save"] + seconds["hash"])


def plain_hash(arrays: Arrays) -> str:
    """Return the SHA-256 of all bytes, one tensor after the other."""
    hasher = hashlib.sha256()
    for array in arrays.values():
        hasher.update(array.data)
    return hasher.hexdigest()


def register(registry: Registry, arrays: Arrays) -> None:
    """Store the arrays as a version."""
    tensors = {
        name: Tensor.of_bytes("U8", array.shape, array.data) for name, array in arrays.items()
    }
    registry.register(MODEL, tensors, actor="bench")


def sync(path: Path) -> None:
    """Make a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def stored_bytes(folder: Path) -> int:
    """Return how many bytes the files below a folder have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def random_layers(names: range, layer_bytes: int, seed: int) -> Arrays:
    """Return tensors of random bytes."""
    random = np.random.default_rng(seed)
    return {f"layer{n}": random.integers(0, 256, layer_bytes, dtype=np.uint8) for n in names}


def figures(rounds: int, mib: int, folder: Path) -> list[Figure]:
    """Do so many rounds on a model of so many MiB."""
    layer_bytes = mib * 2**20 // LAYERS
    arrays = random_layers(range(LAYERS), layer_bytes, seed=1)
    changed = random_layers(range(round(LAYERS * (1 - SHARED))), layer_bytes, seed=2)
    done = []
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            done.append(Round(Path(own), arrays))
            done[-1].run(changed, is_plain_first=number % 2 == 0)
            print(number, {name: round(s, 2) for name, s in done[-1].seconds.items()}, flush=True)
    del done[0]  # it was the first to touch the memory of a virtual machine
    names = (
        ("save", "a plain safetensors save"),
        ("hash", "SHA-256 of the same bytes"),
        ("sync", "making that file durable"),
        ("register", "registering from memory"),
        ("register file", "registering from a file"),
        ("next", f"registering a version that shares {SHARED:.0%}"),
        ("load", "loading, every byte verified"),
        ("plain load", "a plain load and SHA-256"),
    )
    return [
        *(figure(what, [each.seconds[name] for each in done], "s") for name, what in names),
        figure("registering / plain save and SHA-256", [each.ratio("register") for each in done],
               "x", f"<= {RATIO_MAX:g}", lambda v: v <= RATIO_MAX),
        figure("loading / plain save and SHA-256", [each.ratio("load") for each in done],
               "x", f"<= {RATIO_MAX:g}", lambda v: v <= RATIO_MAX),
        figure("registering and loading / plain save, plain load and SHA-256 of each",
               [each.both() for each in done], "x", f"<= {RATIO_MAX:g}", lambda v: v <= RATIO_MAX),
        figure("registering and loading / plain save and SHA-256, once",
               [each.ratio("register", "load") for each in done], "x"),
        figure("registering from a file / plain save and SHA-256",
               [each.ratio("register file") for each in done], "x"),
        figure("registering, in processors' time", [each.busy_ratio("register") for each in done],
               "x"),
        figure("loading, in processors' time", [each.busy_ratio("load") for each in done], "x"),
        figure(f"bytes added by a version that shares {SHARED:.0%}",
               [each.stored for each in done], "of the first", f"<= {STORED_MAX:g}",
               lambda v: v <= STORED_MAX),
    ]  # fmt: skip


def main() -> None:
    """Measure, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024, help="Size of the model.")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()),
                        help="Where the files go: on the disk that is to be measured.")  # fmt: skip
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/registry.json"))
    options = parser.parse_args()
    show("Registry", figures(options.rounds, options.mib, options.folder), options.output)


if __name__ == "__main__":
    main()
