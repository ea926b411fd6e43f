"""Coordinators with a storage of their own each: what one machine takes with it, the others have.

Processes are real, and so is the loss: a killed coordinator's directory is removed.
"""

import asyncio
import os
import random
import shutil
import signal
import sys
from collections.abc import Mapping

import pytest
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator.records.tip import Tip
from pliska.coordinator.wire.job import Job, parse_job

WORKERS = ("w1", "w2", "w3")


class Watcher:
    """Notes every commit that the store ever named."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.seen: dict[int, set[bytes]] = {}
        self._task = asyncio.create_task(asyncio.to_thread(self._watch))
        self._is_over = False

    def _watch(self) -> None:
        directory = self.site.directory
        backend, key = directory.backend, directory.commit_key
        while not self._is_over:
            record = directory.commit()
            if record is not None:
                claimed = Tip.claimed(record.value)
                self.seen.setdefault(claimed.version, set()).add(claimed.parameters_digest)
            after = record.modified if record else backend.list(key).revision
            backend.wait_for_change(key, after, 0.2)

    async def close(self) -> None:
        self._is_over = True
        await self._task


def expect_all_there(site: Site, name: str, seen: Mapping[int, set[bytes]]) -> None:
    """Check that one coordinator's storage has every round, and those that were seen committed."""
    chain = site.chain(site.own_storage(name))
    assert [record.round for record in chain] == list(range(1, site.job.rounds.count + 1))
    epochs = [record.epoch for record in chain]
    assert epochs == sorted(epochs)
    for version, digests in seen.items():
        assert digests == {chain[version - 1].parameters_digest}, f"version {version}"
    assert chain[-1].parameters_digest == site.undisturbed_digest(*WORKERS)


async def replace_leader(site: Site, alive: list[str], name: str) -> None:
    """Kill the leader, remove its disk, and start another coordinator in its place."""
    leader = await site.leads(*alive)
    await site.processes.kill(site.children[leader])
    shutil.rmtree(site.own_storage(leader))
    alive.remove(leader)
    alive.append(name)
    await site.coordinator(name, session_timeout_s=2.0, storage=site.own_storage(name))


async def all_follow(site: Site, alive: list[str]) -> None:
    leader = await site.leads(*alive)
    await site.follow(*(set(alive) - {leader}))


@pytest.mark.timeout(300)
async def test_losing_the_leaders_machine_and_disk_loses_no_committed_round(site: Site) -> None:
    seed = int(os.environ.get("PLISKA_SEED", random.randrange(10**6)))
    chance = random.Random(seed)
    sys.stdout.write(f"again with PLISKA_SEED={seed}\n")
    site.define(toy_job(count=16))
    alive = ["c1", "c2", "c3"]
    for name in alive:
        await site.coordinator(name, session_timeout_s=2.0, storage=site.own_storage(name))
    await all_follow(site, alive)
    watcher = Watcher(site)
    pace = site.paced_worker("w1")
    site.worker("w2")
    site.worker("w3")
    for number, version in enumerate(sorted(chance.sample(range(1, 15), 3)), 4):
        pace.allow(version + 1)  # the kill comes somewhere in the round that follows
        await site.committed(version)
        await asyncio.sleep(chance.random() * 0.05)
        await replace_leader(site, alive, f"c{number}")
        await all_follow(site, alive)
    pace.allow(16)
    assert await site.finished() == [16, 16, 16]
    await watcher.close()
    for name in alive:
        await site.children[name].process.wait()
        expect_all_there(site, name, watcher.seen)


def durable(job: Job, replicas: object) -> Job:
    """The same job with a statement on replicas."""
    written = f'"{replicas}"' if isinstance(replicas, str) else replicas
    return parse_job(f"durable = {{ replicas = {written} }}\n{job.text}", "toy.toml")


async def starts(site: Site, *names: str, session_timeout_s: float = 2.0) -> list[str]:
    """Start coordinators with a storage of their own; return them with the leader first."""
    for name in names:
        await site.coordinator(
            name, session_timeout_s=session_timeout_s, storage=site.own_storage(name)
        )
    leader = await site.leads(*names)
    standbys = [name for name in names if name != leader]
    await site.follow(*standbys)
    return [leader, *standbys]


@pytest.mark.timeout(300)
async def test_a_stated_replica_that_is_missing_is_waited_for_and_told(site: Site) -> None:
    site.define(durable(toy_job(count=6), 1))
    leader, standby = await starts(site, "c1", "c2")
    pace = site.paced_worker("w1")
    site.worker("w2")
    site.worker("w3")
    pace.allow(3)
    await site.committed(3)
    await site.processes.kill(site.children[standby])
    pace.allow(6)
    now = await site.status(lambda now: "no standby is there" in now["replicas"]["reason"])
    assert now["replicas"]["reason"].startswith("version 4 waits for 1 of 1 replicas")
    assert (now["version"], now["committed_version"]) == (3, 3)
    # The same disk comes back, and the rounds go on.
    await site.coordinator("c3", session_timeout_s=2.0, storage=site.own_storage(standby))
    assert await site.finished() == [6, 6, 6]
    for name in (leader, "c3"):
        await site.children[name].process.wait()
    for name in (leader, standby):
        expect_all_there(site, name, {})


@pytest.mark.timeout(300)
async def test_a_standby_that_hangs_delays_a_round_for_its_session_at_most(site: Site) -> None:
    site.define(toy_job(count=6))
    leader, standby = await starts(site, "c1", "c2")
    pace = site.paced_worker("w1")
    site.worker("w2")
    site.worker("w3")
    pace.allow(3)
    await site.committed(3)
    site.children[standby].signal(signal.SIGSTOP)
    pace.allow(4)
    await site.committed(4)
    now = await site.status(lambda now: now["replicas"]["in_force"] == 0)
    assert "only" in now["replicas"]["reason"]
    site.children[standby].signal(signal.SIGCONT)
    await site.follow(standby)
    pace.allow(6)
    assert await site.finished() == [6, 6, 6]
    for name in (leader, standby):
        await site.children[name].process.wait()
        expect_all_there(site, name, {})


@pytest.mark.timeout(300)
async def test_a_leader_that_lacks_the_last_round_gets_it_or_does_not_lead(site: Site) -> None:
    site.define(toy_job(count=8))
    leader, having, lacking = await starts(site, "c1", "c2", "c3")
    pace = site.paced_worker("w1")
    site.worker("w2")
    site.worker("w3")
    pace.allow(2)
    await site.committed(2)
    # One of two standbys sleeps while rounds are committed, then both others die.
    site.children[lacking].signal(signal.SIGSTOP)
    pace.allow(5)
    await site.committed(5)
    await site.processes.kill(site.children[leader])
    shutil.rmtree(site.own_storage(leader))
    await site.processes.kill(site.children[having])
    site.children[lacking].signal(signal.SIGCONT)
    now = await site.status(lambda now: "cannot_lead" in now)
    assert "version 5 is missing" in now["cannot_lead"]
    assert now["version"] == 5
    # The other one's machine comes back: whoever leads has every round.
    await site.coordinator("c4", session_timeout_s=2.0, storage=site.own_storage(having))
    pace.allow(8)
    assert await site.finished() == [8, 8, 8]
    for name in (lacking, "c4"):
        await site.children[name].process.wait()
    for name in (lacking, having):
        expect_all_there(site, name, {})
