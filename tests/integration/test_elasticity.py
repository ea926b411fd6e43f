"""Workers that die, come back, hang, flap and leave: none of it blocks or ends the job.

The workers in question are processes. Each test names what users of other systems ran into.
"""

import asyncio
import signal

import pytest
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator.client import (
    CoordinatorClient,
    DonorClient,
    Membership,
    Newest,
    parameters_path,
)
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import Download, NoDonorError, Resource
from pliska.trainer.demo.processes import Child

pytestmark = pytest.mark.timeout(300)
LEASE_S = 1.5


async def start(site: Site, *, count: int = 10, quorum: int = 2, workers: int = 3) -> None:
    """Start one coordinator that soon gives up a silent worker."""
    site.define(toy_job(count=count, workers=workers, quorum=quorum, soft_deadline_s=1.0))
    arguments = ["coordinator", "run", "--job", str(site.job_file), "--store", site.store]
    options = ["--name", "c1", "--worker-lease", str(LEASE_S), "--storage", str(site.storage)]
    key = ["--key", str(site.folder / "coordinator.pem")]
    site.children["c1"] = await site.processes.start("c1", [*arguments, *options, *key])
    await site.leads("c1")


async def process(site: Site, name: str, *options: str, life: int = 1) -> Child:
    """Start a worker as a process; each life of it has the same key."""
    key = site.folder / f"{name}.pem"
    if not key.exists():
        site.enroll(name)
    command = ("worker", "run", "--job", "toy", "--key", str(key), "--store", site.store)
    return await site.processes.start(f"{name}-{life}", (*command, *options))


async def is_here(site: Site, worker: str, wanted: bool) -> None:
    """Wait until the leader counts a worker in, or no longer."""
    await site.status(
        lambda now: (
            wanted
            == any(each["worker"] == worker and each["is_here"] for each in now.get("workers", ()))
        )
    )


async def finishes(site: Site) -> None:
    """Check that the job comes to its end with every round committed once."""
    count = site.job.rounds.count
    assert set(await site.finished()) == {count}
    assert [record.round for record in site.chain()] == list(range(1, count + 1))


async def test_a_worker_that_dies_is_not_waited_for_beyond_its_lease(site: Site) -> None:
    """Dead members kept as "waiting" for ever: torchft #63, pytorch #111646, Flower PR #4968."""
    await start(site)
    pace = site.paced_worker("w1")
    site.worker("w2")
    dying = await process(site, "w3")
    await is_here(site, "w3", wanted=True)
    pace.allow(2)
    await site.committed(2)
    await site.processes.kill(dying)
    await is_here(site, "w3", wanted=False)
    pace.allow(10)
    await finishes(site)


async def test_a_worker_that_hangs_is_not_waited_for_and_works_again_when_it_wakes(
    site: Site,
) -> None:
    """A cutoff that never fires when a member hangs: OpenFL #981."""
    await start(site)
    pace = site.paced_worker("w1")
    site.worker("w2")
    hanging = await process(site, "w3")
    await is_here(site, "w3", wanted=True)
    pace.allow(2)
    await site.committed(2)
    hanging.signal(signal.SIGSTOP)
    await is_here(site, "w3", wanted=False)
    pace.allow(5)
    await site.committed(5)
    hanging.signal(signal.SIGCONT)
    await is_here(site, "w3", wanted=True)
    pace.allow(10)
    await finishes(site)
    assert await hanging.process.wait() == 0


async def test_a_worker_that_comes_back_with_its_key_is_given_work_again(site: Site) -> None:
    """A restarted member with the same key that gets no work: Flower #4844."""
    await start(site)
    pace = site.paced_worker("w1")
    site.worker("w2")
    first = await process(site, "w3")
    await is_here(site, "w3", wanted=True)
    pace.allow(2)
    await site.committed(2)
    await site.processes.kill(first)
    second = await process(site, "w3", life=2)  # before the lease of its first life ends
    await site.status(lambda _now: "reason=joined" in second.log.read_text())
    pace.allow(10)
    await finishes(site)
    assert await second.process.wait() == 0
    lives = {
        each.incarnation
        for record in site.chain()
        for each in record.contributions
        if each.worker == "w3"
    }
    assert len(lives) == 2


async def test_a_worker_that_flaps_ends_nothing(site: Site) -> None:
    """Quick leaving and joining that never settles: pytorch #147064, torchft PR #71."""
    await start(site)
    pace = site.paced_worker("w1")
    site.worker("w2")
    for life in range(1, 4):
        flapping = await process(site, "w3", life=life)
        await is_here(site, "w3", wanted=True)
        pace.allow(2 * life)
        await site.committed(2 * life)
        await site.processes.kill(flapping)
        await is_here(site, "w3", wanted=False)
    pace.allow(10)
    await finishes(site)


async def test_leaving_at_the_minimum_waits_with_a_reason_until_somebody_comes(
    site: Site,
) -> None:
    """A graceful leave below the minimum, then a join: horovod #3494, pytorch #182221."""
    await start(site, workers=2, quorum=2)
    pace = site.paced_worker("w1")
    leaving = await process(site, "w2")
    await is_here(site, "w2", wanted=True)
    pace.allow(3)
    await site.committed(3)
    await site.processes.stop([leaving])
    await is_here(site, "w2", wanted=False)
    pace.allow(10)
    now = await site.status(lambda now: "1 of 2" in now["reason"])
    assert now["version"] in (3, 4)
    await process(site, "w3")
    await finishes(site)


async def test_a_newcomer_whose_coordinator_dies_while_it_joins_finds_the_next_one(
    site: Site,
) -> None:
    """A donor that leaves in the middle of a recovery: prime-diloco #156, horovod #2995."""
    site.define(toy_job(count=8, quorum=2))
    for name in ("c1", "c2"):
        await site.coordinator(name, session_timeout_s=2.0, storage=site.own_storage(name))
    leader = await site.leads("c1", "c2")
    (standby,) = {"c1", "c2"} - {leader}
    await site.follow(standby)
    pace = site.paced_worker("w1")
    site.worker("w2")
    newcomer = asyncio.create_task(process(site, "w3"))
    pace.allow(3)
    await site.committed(3)
    await site.processes.kill(site.children[leader])
    assert await site.leads(standby) == standby
    pace.allow(8)
    assert set(await site.finished()) == {8}
    assert await (await newcomer).process.wait() == 0
    chain = site.chain(site.own_storage(standby))
    assert [record.round for record in chain] == list(range(1, 9))


async def test_a_worker_that_donates_gives_its_parameters_to_one_that_joins(site: Site) -> None:
    """Recovery from the leader alone, which is no use once many join: torchft, hivemind."""
    await start(site, count=4, quorum=2, workers=2)
    giving = await process(site, "w1", "--donate", "127.0.0.1")
    await is_here(site, "w1", wanted=True)
    site.enroll("w3")
    signer, leader = site.signer("w3"), site.directory.leader()
    assert leader is not None
    async with CoordinatorClient(leader.endpoint, "toy") as client:
        joined = await client.join("w3", bytes(16), signer, b"")
        assert isinstance(joined, Membership)
        newest = await client.newest(joined)
        assert isinstance(newest, Newest)
        await client.leave(joined)
    (endpoint,) = newest.donors
    assert endpoint.name == "w1"
    await given(DonorClient(endpoint, "toy", signer), newest, 4 * Computation(site.job).dimension)
    site.worker("w2")
    await finishes(site)
    assert await giving.process.wait() == 0


async def given(donor: DonorClient, newest: Newest, size: int) -> None:
    """Fetch a version from this donor alone, as soon as it has it."""
    resource = Resource(parameters_path(newest.version), newest.version.digest, size)
    try:
        async with asyncio.timeout(60.0):
            while True:
                try:
                    return await Download(resource, memoryview(bytearray(size))).fetch([donor])
                except NoDonorError:  # the worker has joined and downloads just now
                    await asyncio.sleep(0.05)
    finally:
        await donor.close()
