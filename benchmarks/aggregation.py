"""How long rules take, as multiples of one read of their input, beside torch and three libraries.

    python benchmarks/aggregation.py [--d 1000000 10000000] [--n 8 16 32 64] [--rules ...]
        [--rounds 5] [--seconds 60] [--json FILE]

A read is `torch.sum` over the whole matrix. All candidates of a shape take
turns, round by round, in one process; the median of the rounds is printed with
their spread. Memory is what a call adds to the process at its peak, less the
input, in MB. Peers (ByzFL, ByzPy, Flower) are run if they can be imported: see
`conformance.py` for how. A peer that would take longer than --seconds for a
shape is run once. NumPy's OpenBLAS is slowed down by some settings of
OPENBLAS_CORETYPE: unset it for the peers' sake.
"""

import argparse
import json
import resource
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aggregation_candidates as candidates
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from pliska.aggregation.measured_buffer import MeasuredBuffer

READ = "one read"
POLL_S = 0.002
CHUNK = 1 << 18
"""float32 values in a chunk of the wire."""


@dataclass
class Timing:
    """What was measured of one candidate on one shape."""

    rule: str
    library: str
    n: int
    d: int
    milliseconds: list[float] = field(default_factory=list)
    extra_mb: float = 0.0
    failure: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds) if self.milliseconds else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--d", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--rules", nargs="+", default=list(candidates.RULES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="for one rule of one shape")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console(width=120)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    rate = candidates.sgemm_rate()
    found: list[Timing] = []
    for d in options.d:
        for n in options.n:
            rows = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
            measured = measure(rows, options)
            rate = max(rate, candidates.sgemm_rate())
            console.print(f"sgemm {rate / 1e9:.0f} Gflop/s, the best seen in this run")
            console.print(report(measured, 1e3 * n * (n + 1) * d / rate))
            found += measured
            if options.json:
                options.json.write_text(json.dumps([asdict(each) for each in found], indent=1))


def measure(rows: Tensor, options: argparse.Namespace) -> list[Timing]:
    """Measure all rules on one shape."""
    found = []
    for rule in options.rules:
        calls = {READ: rows.sum, **candidates.of(rule, rows, not options.no_peers)}
        found += take_turns(rule, rows, calls, options.rounds, options.seconds)
        if rule == "multi-krum":
            found.append(after_the_last_chunk(rows, options.rounds))
    return found


def take_turns(
    rule: str, rows: Tensor, calls: candidates.Calls, rounds: int, seconds: float
) -> list[Timing]:
    """Time every candidate of one rule in turn, the slow ones less often."""
    n, d = rows.shape
    timings = {name: Timing(rule, name, n, d) for name in calls}
    for name, call in calls.items():
        try:
            timings[name].extra_mb = peak_memory_mb(call)
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way; it is reported
            timings[name].failure = f"{type(error).__name__}: {error}"
    share_ms = 1e3 * seconds / len(calls)
    for _ in range(rounds):
        for name, call in calls.items():
            timing = timings[name]
            if not timing.failure and sum(timing.milliseconds) < share_ms:
                timing.milliseconds.append(one_call_ms(call))
    return list(timings.values())


def after_the_last_chunk(rows: Tensor, rounds: int) -> Timing:
    """Time Multi-Krum from the arrival of the last chunk of the last row."""
    n, d = rows.shape
    timing = Timing("multi-krum", "pliska, rest after the last chunk", n, d)
    rule = candidates.pliska("multi-krum", candidates.faults("multi-krum", n))
    buffer = MeasuredBuffer(n, d)
    for _ in range(rounds):
        places = [buffer.claim(f"w{i}") for i in range(n)]
        for row, place in zip(rows, places, strict=True):
            buffer.row(place).copy_(row)
            buffer.mark_filled(place)
            buffer.arrived(place, d if place != places[-1] else (d - 1) // CHUNK * CHUNK)

        def finish(last: int = places[-1]) -> None:
            buffer.arrived(last, d)
            rule(buffer)

        timing.milliseconds.append(one_call_ms(finish))
        for place in places:
            buffer.release(place)
    return timing


def one_call_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - started)


def peak_memory_mb(call: Callable[[], object]) -> float:
    """Return by how much the process grows while it makes this call for the first time."""
    before = peak = resident_mb()
    is_over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(POLL_S):
            peak = max(peak, resident_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        is_over.set()
        watcher.join()
    return max(peak, resident_mb()) - before


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def report(found: list[Timing], flops_ms: float) -> Table:
    """Show times as multiples of the read, and of the larger of read and flops."""
    title = f"n={found[0].n} d={found[0].d:,}; n(n+1)d flops at sgemm's rate take {flops_ms:.1f} ms"
    table = Table("rule", "library", "ms", "spread", "reads", "limits", "extra MB", title=title)
    reads = {each.rule: each.median for each in found if each.library == READ}
    for each in found:
        if each.failure:
            table.add_row(each.rule, each.library, each.failure[:30])
            continue
        read = reads[each.rule]
        limit = max(read, flops_ms) if each.rule in candidates.DISTANCE_RULES else read
        table.add_row(
            each.rule,
            each.library,
            f"{each.median:.1f}",
            f"{min(each.milliseconds):.1f}-{max(each.milliseconds):.1f}",
            f"{each.median / read:.2f}",
            f"{each.median / limit:.2f}",
            f"{each.extra_mb:.0f}",
            end_section=each is found[-1],
        )
    return table


if __name__ == "__main__":
    main()
