"""As many workers as a job may have: the leader's memory, and how time grows with their number.

The leader is in a process of its own for each sample, with its real parts; the
workers are signed messages that come one after the other.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from report import Figure, figure

from pliska.coordinator.wire.limits import WORKERS_MAX

COUNTS = (64, 128, WORKERS_MAX)
WIDTH = 500_000
RULES = {"trimmed-mean": 1, "multi-krum": 2}
"""The greatest power of n that a rule's time may grow with."""
SLACK = 1.25
SCRATCH_BYTES = 64 * 2**20
"""What a rule may take beside its rows, whatever their number and length."""

JOB = """
name = "wide"
model = {{ factory = "rounds_durability:model", arguments = {{ width = {width} }} }}
data = {{ factory = "rounds_durability:data", arguments = {{ width = {width} }} }}
rule = {{ name = "{rule}", f = {f} }}
optimizer = {{ name = "sgd", lr = 0.1 }}
checkpoint = {{ every = 1000000 }}
evaluate = {{ every = 1000000 }}
[rounds]
count = 100
workers = {n}
quorum = {n}
soft_deadline_s = 2000.0
deadline_s = 3000.0
"""


@dataclass(frozen=True)
class Sample:
    """One round.

    Attributes:
        round_s: From the first gradient to the commit.
        closing_s: From the last gradient to the commit.
        memory_bytes: The process's peak above what it had before the first gradient.
    """

    round_s: float
    closing_s: float
    memory_bytes: int


def figures(repeats: int) -> list[Figure]:
    """Measure each rule with each number of workers so often."""
    found = []
    for rule, power in RULES.items():
        samples = {n: [_sample(rule, n) for _ in range(repeats)] for n in COUNTS}
        found += _table(rule, power, samples)
    return found


def _table(rule: str, power: int, samples: dict[int, list[Sample]]) -> list[Figure]:
    found = [
        figure(f"{rule}, n = {n}: a round", [each.round_s for each in samples[n]], "s")
        for n in COUNTS
    ]
    for fewer, more in pairwise(COUNTS):
        growth = [b.round_s / a.round_s for a, b in zip(samples[fewer], samples[more], strict=True)]
        most = (more / fewer) ** power * SLACK
        found.append(
            figure(
                f"{rule}: a round of {more} against one of {fewer}",
                growth,
                "times",
                f"at most {most:g}",
                lambda value, most=most: value <= most,
            )
        )
    most_n = COUNTS[-1]
    allowed = 4 * 2 * WIDTH * (most_n + 3) + SCRATCH_BYTES
    found.append(
        figure(
            f"{rule}, n = {most_n}: memory, of the buffer, three models and a rule's 64 MiB",
            [each.memory_bytes / allowed for each in samples[most_n]],
            "",
            "at most 1",
            lambda share: share <= 1,
        )
    )
    return found


def _sample(rule: str, n: int) -> Sample:
    done = subprocess.run(
        [sys.executable, __file__, rule, str(n)], capture_output=True, text=True, check=True
    )
    return Sample(**json.loads(done.stdout.splitlines()[-1]))


async def _round(folder: Path, rule: str, n: int) -> Sample:
    from training.leadership import Lead

    from pliska.coordinator.wire.job import parse_job

    text = JOB.format(width=WIDTH, rule=rule, f=n // 5, n=n)
    lead = Lead(parse_job(text, "wide.toml"), folder)
    workers = [f"w{number}" for number in range(n)]
    lead.begin()
    async with lead.running():
        await lead.join(*workers)
        before = _memory_bytes("VmRSS")
        began_at = time.perf_counter()
        for number, worker in enumerate(workers):
            await lead.push(worker, 1e-3 * (1 + number % 7))
        last_at = time.perf_counter()
        await lead.committed(1)
        ended_at = time.perf_counter()
    lead.close()
    return Sample(ended_at - began_at, ended_at - last_at, _memory_bytes("VmHWM") - before)


def _memory_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"this system does not tell {field}")


def main() -> None:
    """Print one sample: a rule and a number of workers are the arguments."""
    rule, n = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asdict(asyncio.run(_round(Path(folder), rule, n)))))


if __name__ == "__main__":
    main()
