"""What one slow worker costs: committed rounds a second with it and without it.

A leader with its real parts (TLS, signatures, the log on disk) and workers that
take a fixed time for each gradient. Runs with and without the straggler take
turns; a ratio is taken inside one pair.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from report import Figure, figure
from training.leadership import Lead
from training.site import Slow
from training.toy_job import toy_job

from pliska.coordinator.training.computation import Computation
from pliska.trainer.gradient_source import HonestSource
from pliska.trainer.worker import Worker, WorkerOptions

WORKERS = 16
QUORUM = 12
TURN_S = 0.5
"""Long beside what a round costs this machine, which all workers share with the leader."""
SLOWER = 5
WARM_UP_S = 8 * TURN_S
MEASURED_S = 30 * TURN_S


def figures(repeats: int) -> list[Figure]:
    """Compare rounds with one straggler among 16 workers with rounds without, by mode."""
    found = []
    for mode, quorum in (("hybrid", QUORUM), ("synchronous", QUORUM), ("synchronous", WORKERS)):
        pairs = [(rate(mode, quorum, 1), rate(mode, quorum, SLOWER)) for _ in range(repeats)]
        found += _compared(mode, quorum, pairs)
    return found


def _compared(mode: str, quorum: int, pairs: Sequence[tuple[float, float]]) -> list[Figure]:
    name = f"{mode}, quorum {quorum} of {WORKERS}"
    ratios = [slowed / even for even, slowed in pairs]
    is_promised = mode == "hybrid"
    return [
        figure(f"{name}: rounds without a straggler", [even for even, _ in pairs], "a second"),
        figure(
            f"{name}: with one {SLOWER} times slower, as a share of that",
            ratios,
            "",
            "at least 0.9" if is_promised else "",
            (lambda ratio: ratio >= 0.9) if is_promised else None,
        ),
    ]


def rate(mode: str, quorum: int, slower: float) -> float:
    """Return committed rounds a second with one worker that is so many times slower."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_rate(Path(folder), mode, quorum, slower))


async def _rate(folder: Path, mode: str, quorum: int, slower: float) -> float:
    # Each worker computes in a thread, and those of one loop are fewer than these workers.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4 * WORKERS))
    job = toy_job(
        count=100_000,
        workers=WORKERS,
        quorum=quorum,
        rule='name = "trimmed-mean", f = 3',
        soft_deadline_s=0.05,
        deadline_s=30.0,
        more=f'[mode]\nstart = "{mode}"\n[hybrid]\nstaleness_max = 16',
    )
    lead = Lead(job, folder)
    try:
        async with lead.serving(), lead.running():
            workers = [
                asyncio.create_task(_worker(lead, number, slower).run())
                for number in range(WORKERS)
            ]
            publisher = lead.leading.publisher
            while publisher.published.version == 0:
                await publisher.newer_than(0, 60.0)
            await asyncio.sleep(WARM_UP_S)
            begun, first = time.monotonic(), publisher.published.version
            await asyncio.sleep(MEASURED_S)
            made = publisher.published.version - first
            elapsed = time.monotonic() - begun
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            return made / elapsed
    finally:
        lead.close()


def _worker(lead: Lead, number: int, slower: float) -> Worker:
    computation = Computation(lead.job)
    name = f"w{number:02d}"
    turn_s = TURN_S * slower if number == 0 else TURN_S
    return Worker(
        name=name,
        directory=lead.directory,
        computation=computation,
        source=Slow(HonestSource(computation), turn_s),
        signer=lead.signer(name),
        options=WorkerOptions(60.0),
    )
