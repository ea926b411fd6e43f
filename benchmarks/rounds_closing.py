"""What a round still has to do when its last gradient is there: 16 workers, 10 million parameters.

The leader and a standby, with storages of their own, are processes; the workers
are tasks of this one. All of them share the machine's cores, as they would not.
A round lasts from its opening to its commit, which is on two disks; its closing
begins with the last accepted byte. Both are read off the leader's log.
"""

import asyncio
import re
import tempfile
from datetime import datetime
from pathlib import Path

import torch
from report import Figure, figure
from torch.utils.data import TensorDataset
from training.ready_processes import ReadyProcesses
from training.site import Site

from pliska.coordinator.wire.job import parse_job
from services.zygote import PLISKA, Zygote

WORKERS = 16
WIDTH = 5_000_000
WARM_UP = 2
ROUNDS = 5
SHARE_MAX = 0.25

JOB = f"""
name = "toy"
model = {{ factory = "rounds_durability:model", arguments = {{ width = {WIDTH} }} }}
data = {{ factory = "rounds_closing:data", arguments = {{ width = {WIDTH} }} }}
rule = {{ name = "multi-krum", f = 3 }}
optimizer = {{ name = "sgd", lr = 1e-9 }}
checkpoint = {{ every = 1000000 }}
evaluate = {{ every = 1000000 }}
durable = {{ replicas = 1 }}
[rounds]
count = {WARM_UP + ROUNDS}
workers = {WORKERS}
quorum = {WORKERS}
soft_deadline_s = 500.0
deadline_s = 600.0
"""

STAMP = re.compile(r"^(\S+ \S+) INFO round=(\d+) phase=(collecting|aggregating|finished)")
EXAMPLES = 512


def data(width: int) -> tuple[TensorDataset, TensorDataset]:
    """Return examples with one input and random targets: enough for gradients that differ."""
    inputs = torch.randn(1, width).expand(EXAMPLES, width)
    dataset = TensorDataset(inputs, torch.randint(2, (EXAMPLES,)))
    return dataset, TensorDataset(inputs[:1], torch.zeros(1, dtype=torch.int64))


def figures(repeats: int) -> list[Figure]:
    """Run the job so often."""
    shares, closings, rounds = [], [], []
    for _ in range(repeats):
        zygote = Zygote()
        try:
            with tempfile.TemporaryDirectory() as folder:
                text = asyncio.run(_leaders_log(Path(folder), zygote))
        finally:
            zygote.end()
        for opened, closed, committed in _moments(text)[WARM_UP:]:
            rounds.append((committed - opened).total_seconds())
            closings.append((committed - closed).total_seconds())
            shares.append(closings[-1] / rounds[-1])
    name = f"{WORKERS} workers, d = {2 * WIDTH:,}, Multi-Krum, a standby's copy"
    return [
        figure(f"{name}: a round", rounds, "s"),
        figure(f"{name}: from its last byte to its commit", closings, "s"),
        figure(
            f"{name}: that, as a share of the round",
            shares,
            "",
            f"at most {SHARE_MAX:g}",
            lambda share: share <= SHARE_MAX,
        ),
    ]


async def _leaders_log(folder: Path, zygote: Zygote) -> str:
    async with ReadyProcesses(zygote, PLISKA, folder / "logs") as processes:
        site = Site(folder, f"embedded:{folder / 'store'}", processes, processes)
        site.define(parse_job(JOB, "toy.toml"))
        for name in ("c1", "c2"):
            await site.coordinator(name, session_timeout_s=30.0, storage=site.own_storage(name))
            await (site.leads("c1") if name == "c1" else site.stands_by("c2"))
        for number in range(WORKERS):
            site.worker(f"w{number + 1}")
        async with asyncio.timeout(600.0):
            await asyncio.gather(*site.tasks)
        return site.children["c1"].log.read_text()


def _moments(text: str) -> list[tuple[datetime, datetime, datetime]]:
    """Return when each round was opened, closed and committed, which opens the next one."""
    stamps = [stamp for line in text.splitlines() if (stamp := STAMP.match(line))]
    at = [datetime.strptime(f"{each[1]}+0000", "%Y-%m-%d %H:%M:%S,%f%z") for each in stamps]
    phases = [each[3] for each in stamps]
    return [
        (at[i], at[i + 1], at[i + 2])
        for i in range(len(stamps) - 2)
        if phases[i : i + 2] == ["collecting", "aggregating"]
    ]
