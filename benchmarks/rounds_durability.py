"""What it costs to commit a round: on the leader's disk only, at a standby too, several at once.

A leader in this process with its real parts and the embedded store; the standby
is a process of its own with a storage of its own. What is measured is how long a
round waits until the next one may begin (`Ledger.append`), spread over all rounds
where several share one commit. Settings take turns, so that all meet the same load.
"""

import asyncio
import contextlib
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median

import torch
from report import Figure, figure
from torch import nn
from torch.utils.data import TensorDataset
from training.leadership import Lead

from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.leading import Leading
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.log_entry import LogEntry
from pliska.coordinator.replication.ledger import Ledger
from pliska.coordinator.replication.probe import MARK_BYTES, leave_mark
from pliska.coordinator.replication.replicas import Replicas
from pliska.coordinator.wire.job import Job, parse_job
from pliska.coordinator.wire.tls import self_signed
from pliska.trainer.demo.processes import Processes

ROUNDS = 16
"""In one sample; the first ones, while memory and files are new, do not count."""
WARM_UP = 4
FOLLOW_TIMEOUT_S = 120.0

JOB = """
name = "wide"
model = {{ factory = "rounds_durability:model", arguments = {{ width = {width} }} }}
data = {{ factory = "rounds_durability:data", arguments = {{ width = {width} }} }}
rule = {{ name = "mean", f = 0 }}
optimizer = {{ name = "sgd", lr = 0.1 }}
checkpoint = {{ every = 1000000 }}
evaluate = {{ every = 1000000 }}
durable = {{ every = {every}, replicas = {replicas} }}
rounds = {{ count = 100000, workers = 1, quorum = 1 }}
"""


@dataclass(frozen=True)
class Setting:
    """One way to be durable."""

    width: int
    every: int
    replicas: int

    @property
    def name(self) -> str:
        """For the table."""
        copies = "a standby too" if self.replicas else "own disk"
        at_once = f", {self.every} rounds at once" if self.every > 1 else ""
        return f"d = {2 * self.width:,}: commit, {copies}{at_once}"


WIDTHS = (5_000, 500_000, 5_000_000)
SETTINGS = tuple(
    Setting(width, every, replicas)
    for width in WIDTHS
    for replicas, every in ((0, 1), (1, 1), (1, 4))
)


def model(width: int) -> nn.Module:
    return nn.Linear(width, 2, bias=False)


def data(width: int) -> tuple[TensorDataset, TensorDataset]:
    """Return two examples that fit the model; no gradient is computed from them here."""
    inputs = torch.zeros(1, width).expand(2, width)
    dataset = TensorDataset(inputs, torch.zeros(2, dtype=torch.int64))
    return dataset, dataset


def figures(repeats: int) -> list[Figure]:
    """Measure each setting so often, in turns."""
    samples: dict[Setting, list[float]] = {setting: [] for setting in SETTINGS}
    for _ in range(repeats):
        for setting in SETTINGS:
            samples[setting].append(1000 * cost_s(setting))
    found = [figure(setting.name, samples[setting], "ms a round") for setting in SETTINGS]
    for width in WIDTHS:
        alone, copied, at_once = (samples[each] for each in SETTINGS if each.width == width)
        pairs = zip(alone, copied, strict=True)
        saved = zip(copied, at_once, strict=True)
        name = f"d = {2 * width:,}: a standby's copy, against own disk only"
        found.append(figure(name, [with_copy / own for own, with_copy in pairs], "times"))
        name = f"d = {2 * width:,}: 4 rounds at once, against each by itself"
        found.append(figure(name, [fourth / each for each, fourth in saved], "times"))
    return found


def cost_s(setting: Setting) -> float:
    """Return how long a round waits for its commit, on average over the rounds of a sample."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_cost_s(Path(folder), setting))


async def _cost_s(folder: Path, setting: Setting) -> float:
    text = JOB.format(width=setting.width, every=setting.every, replicas=setting.replicas)
    job = parse_job(text, "wide.toml")
    lead = Lead(job, folder, f"embedded:{folder / 'store'}")
    waits: list[float] = []
    try:
        leading, replicas = await asyncio.to_thread(_begin, lead, asyncio.get_running_loop())
        _time_appends(leading._ledger, waits)  # noqa: SLF001 - only this is of interest
        lead.leading = leading
        async with lead.running(), _standby(folder, job, setting.replicas):
            if setting.replicas:
                await _follows(replicas)
            await lead.join("w1")
            for version in range(1, WARM_UP + ROUNDS + 1):
                await lead.push("w1", 1e-3)
                await lead.committed(version)
    finally:
        lead.close()
    return mean(waits[WARM_UP:])


def _begin(lead: Lead, loop: asyncio.AbstractEventLoop) -> tuple[Leading, Replicas]:
    certificate = self_signed(["127.0.0.1"], datetime.now(UTC)).certificate_pem
    own = Endpoint(lead.name, "127.0.0.1", 9, certificate, lead.identity.key_id)
    leadership = lead.campaign(own.to_bytes())
    mark = secrets.token_bytes(MARK_BYTES)
    replicas = Replicas(
        directory=lead.directory,
        own=own,
        signer=lead.identity.signer,
        leadership=leadership,
        update_log=Archive(lead.storage, lead.job).log,
        wanted=lead.job.durable.replicas,
        probe=leave_mark(lead.storage, lead.job.name, leadership.epoch, mark),
        now=time.monotonic,
        loop=loop,
    )
    return Leading(lead.means(), leadership, copies=replicas), replicas


def _time_appends(ledger: Ledger, waits: list[float]) -> None:
    append = ledger.append

    def timed(entry: LogEntry) -> None:
        begun = time.perf_counter()
        append(entry)
        waits.append(time.perf_counter() - begun)

    ledger.append = timed  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def _standby(folder: Path, job: Job, count: int) -> AsyncIterator[None]:
    """Run a standby beside, where one is wanted."""
    if not count:
        yield
        return
    file = folder / "wide.toml"
    file.write_text(job.text)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    arguments = [
        "coordinator",
        "run",
        "--job",
        str(file),
        "--store",
        f"embedded:{folder / 'store'}",
    ]
    files = ["--storage", str(folder / "other"), "--key", str(folder / "coordinator.pem")]
    async with Processes(Path(sys.executable).with_name("pliska"), folder / "logs") as processes:
        await processes.start("c2", [*arguments, *files, "--name", "c2"])
        yield


async def _follows(replicas: Replicas) -> None:
    async with asyncio.timeout(FOLLOW_TIMEOUT_S):
        states = ["starts"]
        while "following" not in states:
            await asyncio.sleep(0.05)
            states = [each["state"] for each in replicas.status()["standbys"]]


if __name__ == "__main__":
    for each in figures(1):
        print(each.name, f"{median(each.samples):.3g}", each.unit)
