"""Workers die in the middle of a round, and every example is still read once in a pass.

What was read is told from the committed records. Users of other systems found batches that were
skipped or never read: torchft #309, transformers #40245.
"""

import asyncio
import signal

import pytest
from training.passes import miscounts
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator.records.history import committed_history
from pliska.trainer.demo.processes import Child

pytestmark = pytest.mark.timeout(180)
ROUNDS = 12
WORKER_LEASE_S = 1.5


async def start(site: Site) -> None:
    site.define(toy_job(count=ROUNDS, workers=3, quorum=2, soft_deadline_s=1.0))
    arguments = ["coordinator", "run", "--job", str(site.job_file), "--store", site.store]
    options = ["--name", "c1", "--worker-lease", str(WORKER_LEASE_S)]
    files = ["--storage", str(site.storage), "--key", str(site.folder / "coordinator.pem")]
    site.children["c1"] = await site.processes.start("c1", [*arguments, *options, *files])
    await site.leads("c1")


async def worker(site: Site, name: str, life: int) -> Child:
    """Start a worker as a process with the key of its earlier lives; return when it is here."""
    key = site.folder / f"{name}.pem"
    if not key.exists():
        site.enroll(name)
    command = ("worker", "run", "--job", "toy", "--key", str(key), "--store", site.store)
    child = await site.processes.start(f"{name}-{life}", command)
    await site.status(
        lambda now: any(
            each["worker"] == name and each["is_here"] for each in now.get("workers", ())
        )
    )
    return child


async def test_a_worker_killed_in_mid_round_takes_no_sample_with_it(site: Site) -> None:
    await start(site)
    pace = site.paced_worker("w1")
    site.worker("w2")
    dying = await worker(site, "w3", life=1)
    pace.allow(2)
    await site.committed(2)
    # Round 3 waits for w1; w3 stops, is leased a batch of round 4 and dies with it.
    await site.status(lambda now: now.get("round") == 3)
    dying.signal(signal.SIGSTOP)
    pace.allow(3)
    await site.committed(3)
    await site.processes.kill(dying)
    pace.allow(6)
    await site.committed(6)
    await worker(site, "w3", life=2)
    pace.allow(ROUNDS)
    assert set(await site.finished()) == {ROUNDS}

    commits = await asyncio.to_thread(committed_history, site.directory, str(site.storage))
    records = [commit.record for commit in commits]
    assert [record.round for record in records] == list(range(1, ROUNDS + 1))
    lost = [lease for record in records for lease in record.cursor.left]
    assert lost, "no worker died with a lease"
    assert all(records[-1].cursor.is_done(lease) for lease in lost)
    assert records[-1].cursor.end >= 2 * 12  # two passes of 90 examples in batches of 8
    assert not list(miscounts(site.job, records))
