"""Which speeds of `aggregation.py` have a goal, and whether it is met."""

from collections.abc import Iterator

from aggregation_timing import Timing
from report import Figure, figure

READ = "one read"
REST = "pliska, rest after the last chunk"
AT_ONCE = "pliska, all after the last chunk"
ENDINGS = (REST, AT_ONCE)
OURS = "pliska"
UNCOMPILED = "pliska, not compiled"
SORT = "torch sort"
PEERS = ("byzfl", "byzpy", "flwr")

RANK_RULES = ("trimmed-mean", "coordinate-median")
READS_MAX = {8: 1.5, 16: 1.5, 32: 2.2, 64: 2.8}
"""Of trimmed mean and median, by n."""

LIMITS_MAX = {
    "krum": 2.0,
    "multi-krum": 3.0,
    "geometric-median": 3.0,
    "centered-clipping": 3.0,
    "nnm, then trimmed-mean": 3.0,
}
"""The limit is the larger of one read and n(n+1)d flops at sgemm's rate."""

SPEEDUPS = {
    ("trimmed-mean", 1_000_000): 15.0,
    ("coordinate-median", 1_000_000): 15.0,
    ("trimmed-mean", 10_000_000): 40.0,
    ("coordinate-median", 10_000_000): 40.0,
    ("krum", 10_000_000): 12.0,
    ("multi-krum", 10_000_000): 12.0,
    ("centered-clipping", 10_000_000): 25.0,
    ("geometric-median", 10_000_000): 60.0,
}
"""Against the fastest face of any peer, by rule and d; where d is ten million at n = 16."""

EXTRA_MB = 64.0


def figures(found: list[Timing], rate: float) -> list[Figure]:
    """Return every figure that has a goal.

    Args:
        found: All that was measured.
        rate: Flops per second of the fastest sgemm of the run.
    """
    shapes: dict[tuple[str, int, int], dict[str, Timing]] = {}
    for each in found:
        if each.samples:
            shapes.setdefault((each.rule, each.n, each.d), {})[each.library] = each
    made: list[Figure] = []
    for (rule, n, d), timings in shapes.items():
        name = f"{rule}, n={n} d={d:,}"
        made += _against_limits(name, rule, n, 1e3 * n * (n + 1) * d / rate, timings)
        made += _against_others(name, rule, n, d, timings)
        made += _memory(name, d, timings)
    return made


def _against_limits(
    name: str, rule: str, n: int, flops_ms: float, timings: dict[str, Timing]
) -> Iterator[Figure]:
    if READ not in timings or OURS not in timings:
        return
    read = timings[READ].median
    if rule in LIMITS_MAX:
        yield _at_most(name, "limits", timings[OURS], max(read, flops_ms), LIMITS_MAX[rule])
    elif rule in RANK_RULES and n in READS_MAX:
        yield _at_most(name, "reads", timings[OURS], read, READS_MAX[n])
    if REST in timings:
        whole = timings[AT_ONCE].median
        yield _at_most(f"{name}, rest", "of the whole", timings[REST], whole, 0.5)


def _against_others(
    name: str, rule: str, n: int, d: int, timings: dict[str, Timing]
) -> Iterator[Figure]:
    ours = timings.get(OURS)
    peers = [each for library, each in timings.items() if library.startswith(PEERS)]
    speedup = SPEEDUPS.get((rule, d))
    if ours is not None and peers and speedup is not None and (n == 16 or d < 10_000_000):
        fastest = min(peers, key=lambda each: each.median)
        yield _at_least(f"{name}, {fastest.library}", fastest, ours, speedup)
    if UNCOMPILED in timings and SORT in timings:
        yield _at_least(f"{name}, torch.sort", timings[SORT], timings[UNCOMPILED], 7.0)


def _memory(name: str, d: int, timings: dict[str, Timing]) -> Iterator[Figure]:
    if OURS in timings:
        most = EXTRA_MB + 4 * d / 2**20
        extra = timings[OURS].extra_mb
        goal = f"at most {most:.0f}"
        yield figure(f"{name}, memory", [extra], "MB", goal, lambda value: value <= most)


def _at_most(name: str, unit: str, timing: Timing, limit_ms: float, most: float) -> Figure:
    samples = [each / limit_ms for each in timing.counted]
    return figure(name, samples, unit, f"at most {most:g}", lambda value: value <= most)


def _at_least(name: str, slow: Timing, fast: Timing, least: float) -> Figure:
    samples = [each / fast.median for each in slow.counted]
    goal = f"at least {least:g}"
    return figure(f"{name}, by ours", samples, "times", goal, lambda value: value >= least)
