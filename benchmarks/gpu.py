"""Checks and times the aggregation on a GPU against one read at the measured copy bandwidth.

    python benchmarks/gpu.py [--d 100000000] [--json out.json]

Takes under five minutes, most of it for Triton's compiler at n = 64. The goals:
coordinate-wise rules at most 1.3 times, Multi-Krum at most 2.5 times the time of
one read, for n of 16 and 64. A whole call waits for the gate's verdict, and one
with its report compares every row with the aggregate.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch

from pliska.aggregation import CoordinateMedian, MultiKrum, TrimmedMean
from pliska.aggregation.engine import gpu
from pliska.aggregation.engine.networks import Selection

MEMORY_SHARE = 0.7
"""Of the GPU's memory for the rows."""


def milliseconds(work: Callable[[], object], rounds: int = 7) -> float:
    """Return the median time of `work` on the device."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[rounds // 2]


def copy_bandwidth() -> float:
    """Return bytes read plus written per millisecond by a large copy."""
    source = torch.empty(1 << 28, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source))


def check() -> None:
    """Compare kernels and rules with float64 on fresh random rows."""
    for n in (5, 16, 64):
        rows = torch.randn(n, 1_000_003, device="cuda")
        f = n // 4
        out, low, high = (torch.full_like(rows[0], torch.nan) for _ in range(3))
        selection = Selection(n, range(f, n - f))
        gpu.band_mean(tuple(rows), selection, slice(0, rows.shape[1]), out, low, high)
        expected = rows.double().sort(dim=0).values[f : n - f].mean(dim=0)
        assert torch.equal(out, expected.float()), f"trimmed mean of n={n}"
        gram = gpu.products(tuple(rows), slice(0, rows.shape[1]), 0)[:n]
        moved = (rows - rows[0]).double()
        exact = moved @ moved.T
        assert (gram - exact).abs().max() < 1e-6 * exact.max(), f"products of n={n}"
        on_cpu = TrimmedMean(f=f)(rows.cpu()).vector
        assert torch.equal(TrimmedMean(f=f)(rows).vector.cpu(), on_cpu), f"faces of n={n}"
        chosen = [entry.weight for entry in MultiKrum(f=1)(rows).report]
        assert chosen == [entry.weight for entry in MultiKrum(f=1)(rows.cpu()).report]


def timed(n: int, d: int, dtype: torch.dtype, bandwidth: float) -> dict[str, float | int | str]:
    """Time kernels and whole rules for one shape."""
    rows = torch.randn(n, d, device="cuda", dtype=dtype)
    each = tuple(rows)
    f = n // 4
    read = rows.nbytes / bandwidth
    columns = slice(0, d)
    out = torch.empty(d, device="cuda")
    low, high = (torch.empty_like(rows[0]) for _ in range(2))
    weights = [1 / (n - f - 2)] * (n - f - 2)

    def krum() -> None:
        gpu.products(each, columns, 0)
        gpu.weighted_sum(each[: len(weights)], weights, out)

    def averaging(band: range) -> Callable[[], None]:
        selection = Selection(n, band)
        return lambda: gpu.band_mean(each, selection, columns, out, low, high)

    works: dict[str, Callable[[], object]] = {
        "trimmed_mean": averaging(range(f, n - f)),
        "median": averaging(range((n - 1) // 2, n // 2 + 1)),
        "multi_krum": krum,
        "trimmed_mean_call": lambda: TrimmedMean(f=f)(rows),
        "median_call": lambda: CoordinateMedian(f=f)(rows),
        "multi_krum_call": lambda: MultiKrum(f=f)(rows),
        "multi_krum_with_report": lambda: MultiKrum(f=f)(rows).report,
    }
    times = {name: milliseconds(work) / read for name, work in works.items()}
    return {"n": n, "d": d, "dtype": str(dtype), "read_ms": read} | times


def main() -> None:
    """Check, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--d", type=int, default=100_000_000, help="length of a row")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(3, "there is no CUDA device here\n")
    if not gpu.has_triton():
        parser.exit(3, "Triton is not installed: pip install 'pliska[gpu]'\n")
    check()
    print(torch.cuda.get_device_name(), "- checks passed")
    bandwidth = copy_bandwidth()
    print(f"copy bandwidth {bandwidth / 1e9:.2f} TB/s; times in multiples of one read")
    room = MEMORY_SHARE * torch.cuda.get_device_properties(0).total_memory
    results: list[dict[str, float | int | str]] = []
    for n in (16, 64):
        for dtype in (torch.bfloat16, torch.float32):
            d = min(options.d, int(room / (n * dtype.itemsize)))
            results.append(timed(n, d, dtype, bandwidth))
            print(
                "  ".join(
                    f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}"
                    for k, v in results[-1].items()
                ),
                flush=True,
            )
            torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
