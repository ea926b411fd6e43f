"""Timing calls on a machine that others use too: every sample knows how busy they were."""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

CLEAN = 0.15
"""Cores that others may use during a clean sample."""

SAMPLE_S = 0.1
"""A sample takes at least so long."""

POLL_S = 0.002
LOOK_S = 0.05


@dataclass(frozen=True)
class Sample:
    """One call, or a few if it is short.

    Attributes:
        milliseconds: From start to end of a call.
        processor_ms: Processor time of a call, all threads together.
        others: Cores that other processes used meanwhile.
    """

    milliseconds: float
    processor_ms: float
    others: float


@dataclass
class Timing:
    """What was measured of one candidate on one shape."""

    rule: str
    library: str
    n: int
    d: int
    by_processor: bool = False
    samples: list[Sample] = field(default_factory=list)
    extra_mb: float = 0.0
    failure: str = ""

    @property
    def counted(self) -> list[float]:
        """Milliseconds of the clean samples; if there is none, of the less disturbed half.

        By processor time all samples count: waiting is no part of it.
        """
        if self.by_processor:
            return [each.processor_ms for each in self.samples]
        clean = [each for each in self.samples if each.others < CLEAN]
        if not clean:
            half = (len(self.samples) + 1) // 2
            clean = sorted(self.samples, key=lambda each: each.others)[:half]
        return [each.milliseconds for each in clean]

    @property
    def median(self) -> float:
        return statistics.median(self.counted) if self.samples else float("nan")

    @property
    def is_clean(self) -> bool:
        return any(each.others < CLEAN for each in self.samples)


def timed(call: Callable[[], object], patience_s: float, seconds_min: float = SAMPLE_S) -> Sample:
    """Time a call, as soon as the machine is quiet or patience ends.

    It is repeated for `seconds_min`, since the system counts what others use
    in steps of 10 ms.
    """
    wait_for_quiet(patience_s)
    busy, own, started = _busy_s(), time.process_time(), time.perf_counter()
    calls = 0
    while not calls or time.perf_counter() - started < seconds_min:
        call()
        calls += 1
    seconds = time.perf_counter() - started
    processor_s = time.process_time() - own
    others = max(_busy_s() - busy - processor_s, 0.0)
    return Sample(1e3 * seconds / calls, 1e3 * processor_s / calls, others / seconds)


def wait_for_quiet(patience_s: float) -> None:
    """Wait until others use less than `CLEAN` cores, at most so long."""
    end = time.perf_counter() + patience_s
    while time.perf_counter() < end:
        busy, started = _busy_s(), time.perf_counter()
        time.sleep(LOOK_S)
        if (_busy_s() - busy) / (time.perf_counter() - started) < CLEAN:
            return


def peak_memory_mb(call: Callable[[], object]) -> float:
    """Return by how much the process's own memory grows at most during the first call."""
    before = peak = _private_mb()
    is_over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(POLL_S):
            peak = max(peak, _private_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        is_over.set()
        watcher.join()
    return max(peak, _private_mb()) - before


def _busy_s() -> float:
    """Return the seconds that all cores together have been busy since the machine started."""
    user, nice, system, _, _, irq, soft = map(
        int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8]
    )
    return (user + nice + system + irq + soft) / 100


def _private_mb() -> float:
    """Return the process's own memory; files it has mapped, such as libraries, are left out."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise LookupError("/proc/self/status says nothing of RssAnon")
