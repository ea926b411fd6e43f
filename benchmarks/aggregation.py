"""How long rules take, as multiples of one read of their input, beside torch and three libraries.

    make bench BENCH=aggregation ARGS="--d 1000000 --n 8 16 --json out.json"

A read is `torch.sum` over the whole matrix. All candidates of a shape take
turns, round by round, in one process. A sample in which other processes used
more than 0.15 of a core is set aside if there are better ones; --patience waits
for quiet before every sample. The median of the others is printed with their
spread; the column "busy" says how much others used in the best sample, if that
is more. On a machine that is never quiet, --processor-time compares what one
thread computes. Memory is what a call adds to the process's own at its peak. Figures
that have a goal are shown once more at the end and written as JSON, and every
sample beside them.

Peers (ByzFL, ByzPy, Flower) are run if they can be imported. They are no
dependencies of Pliska and pin other versions of torch; put them into a folder
of their own and name it with --peers:

    pip install --no-deps --target /tmp/peers byzfl byzpy flwr torchvision seaborn ...

A peer that would take longer than --seconds for a shape is run less often.
NumPy's OpenBLAS is slowed down by some settings of OPENBLAS_CORETYPE, which
`make bench` unsets for the peers' sake.
"""

import argparse
import json
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path

import aggregation_candidates as candidates
import torch
from aggregation_goals import ENDINGS, READ, figures
from aggregation_timing import Timing, peak_memory_mb, timed
from report import show
from rich.console import Console
from rich.table import Table
from torch import Tensor

from pliska.aggregation.measured_buffer import MeasuredBuffer

CHUNK = 1 << 18
"""float32 values in a chunk of the wire."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--d", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--rules", nargs="+", default=list(candidates.RULES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="for one rule of one shape")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for quiet")
    parser.add_argument(
        "--processor-time", action="store_true", help="of one thread, not the time that passes"
    )
    parser.add_argument("--peers", type=Path, help="folder that peers are installed in")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/aggregation.json"))
    options = parser.parse_args()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    if options.processor_time:
        torch.set_num_threads(1)
    if options.peers is not None:
        sys.path.append(str(options.peers))
    warnings.simplefilter("ignore")
    console = Console(width=120)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    rate = candidates.sgemm_rate(options.processor_time)
    found: list[Timing] = []
    for d in options.d:
        for n in options.n:
            rows = torch.randn(n, d, generator=torch.Generator().manual_seed(n))
            measured = measure(rows, options)
            rate = max(rate, candidates.sgemm_rate(options.processor_time))
            console.print(f"sgemm {rate / 1e9:.0f} Gflop/s, the best seen in this run")
            console.print(report(measured, 1e3 * n * (n + 1) * d / rate))
            found += measured
            every = options.json.with_suffix(".samples.json")
            every.write_text(json.dumps([asdict(each) for each in found], indent=1))
    show("goals", figures(found, rate), options.json)


def measure(rows: Tensor, options: argparse.Namespace) -> list[Timing]:
    """Measure all rules on one shape."""
    found = []
    for rule in options.rules:
        calls = {READ: rows.sum, **candidates.of(rule, rows, not options.no_peers)}
        found += take_turns(rule, rows, calls, options)
        if rule == "multi-krum":
            found += after_the_last_chunk(rows, options)
    return found


def take_turns(
    rule: str, rows: Tensor, calls: candidates.Calls, options: argparse.Namespace
) -> list[Timing]:
    """Time every candidate of one rule in turn, the slow ones less often."""
    n, d = rows.shape
    timings = {name: Timing(rule, name, n, d, options.processor_time) for name in calls}
    for name, call in calls.items():
        try:
            timings[name].extra_mb = peak_memory_mb(call)
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way; it is reported
            timings[name].failure = f"{type(error).__name__}: {error}"
    share_ms = 1e3 * options.seconds / len(calls)
    for _ in range(options.rounds):
        for name, call in calls.items():
            timing = timings[name]
            spent = sum(each.milliseconds for each in timing.samples)
            if not timing.failure and spent < share_ms:
                timing.samples.append(timed(call, options.patience))
    return list(timings.values())


def after_the_last_chunk(rows: Tensor, options: argparse.Namespace) -> list[Timing]:
    """Time Multi-Krum from the arrival of the last chunk of the last row.

    And beside it, on rows that came in just so, from the same moment where nothing was
    multiplied before: a single call after a pause takes longer than one of many.
    """
    n, d = rows.shape
    rule = candidates.pliska("multi-krum", candidates.faults("multi-krum", n))
    rest, at_once = (Timing("multi-krum", each, n, d, options.processor_time) for each in ENDINGS)
    buffer = MeasuredBuffer(n, d)
    began = time.perf_counter()
    while len(at_once.samples) < options.rounds or time.perf_counter() < began + options.seconds:
        for timing in (rest, at_once):
            places = [buffer.claim(f"w{i}") for i in range(n)]
            for row, place in zip(rows, places, strict=True):
                buffer.row(place).copy_(row)
                buffer.mark_filled(place)
                if timing is rest:
                    last = (d - 1) // CHUNK * CHUNK
                    buffer.arrived(place, d if place != places[-1] else last)

            def finish(timing: Timing = timing, last: int = places[-1]) -> None:
                if timing is rest:
                    buffer.arrived(last, d)
                rule(buffer)

            timing.samples.append(timed(finish, options.patience, seconds_min=0.0))
            for place in places:
                buffer.release(place)
    return [rest, at_once]


def report(found: list[Timing], flops_ms: float) -> Table:
    """Show times as multiples of the read, and of the larger of read and flops."""
    title = f"n={found[0].n} d={found[0].d:,}; n(n+1)d flops at sgemm's rate take {flops_ms:.1f} ms"
    columns = ("rule", "library", "ms", "spread", "reads", "limits", "extra MB", "busy")
    table = Table(*columns, title=title)
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
            f"{min(each.counted):.1f}-{max(each.counted):.1f}",
            f"{each.median / read:.2f}",
            f"{each.median / limit:.2f}",
            f"{each.extra_mb:.0f}",
            "" if each.is_clean else f"{min(sample.others for sample in each.samples):.1f}",
        )
    return table


if __name__ == "__main__":
    main()
