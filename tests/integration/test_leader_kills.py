"""The leader is killed again and again; the model comes out as if nothing had happened.

Each coordinator has a storage of its own and comes back on it. `make chaos` does it for a
hundred rounds; PLISKA_SEED plays the same kills again.
"""

import asyncio
import os
import random
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from training.passes import miscounts
from training.site import Site
from training.toy_job import toy_job

from services.consul import ConsulServer
from services.zookeeper import ZookeeperServer

WORKERS = ("w1", "w2", "w3")
COORDINATORS = ("c1", "c2", "c3")
ROUNDS = int(os.environ.get("PLISKA_KILL_ROUNDS", "12"))
ROUNDS_PER_KILL = 4
SESSION_TIMEOUT_S = 2.0
PAUSE_S_MAX = 0.2
"""A kill comes so long after a round was committed at most: anywhere in the next one."""


@pytest.fixture(params=["embedded", "consul", "zookeeper"])
def store_address(request: pytest.FixtureRequest, store_address: str) -> str:
    if request.param == "embedded":
        return store_address
    server: ConsulServer | ZookeeperServer = request.getfixturevalue(request.param)
    return server.fresh_address()


async def start(site: Site, name: str, life: int) -> str:
    """Start a coordinator on its own disk; each life of it has a name of its own."""
    child = f"{name}-{life}"
    await site.coordinator(
        child, session_timeout_s=SESSION_TIMEOUT_S, storage=site.own_storage(name)
    )
    return child


async def led_and_followed(site: Site) -> str:
    """Wait until somebody leads and another one follows; return who leads."""

    def holds(now: Mapping[str, Any]) -> bool:
        standbys = now.get("replicas", {}).get("standbys", [])
        return any(each["state"] == "following" for each in standbys)

    return str((await site.status(holds))["leader"])


@pytest.mark.timeout(60 + 40 * ROUNDS)
async def test_a_leader_killed_every_few_rounds_leaves_no_trace_in_the_model(site: Site) -> None:
    seed = int(os.environ.get("PLISKA_SEED", random.randrange(10**6)))
    chance = random.Random(seed)
    sys.stdout.write(f"again with PLISKA_SEED={seed}\n")
    site.define(toy_job(count=ROUNDS))
    lives = {name: await start(site, name, 1) for name in COORDINATORS}
    pace = site.paced_worker("w1")
    site.worker("w2")
    site.worker("w3")
    await led_and_followed(site)
    for kill, version in enumerate(range(ROUNDS_PER_KILL, ROUNDS, ROUNDS_PER_KILL), 2):
        pace.allow(version + 1)
        await site.committed(version)
        await asyncio.sleep(chance.random() * PAUSE_S_MAX)
        leader = await led_and_followed(site)
        (name,) = [name for name, child in lives.items() if child == leader]
        await site.processes.kill(site.children[leader])
        lives[name] = await start(site, name, kill)
    await led_and_followed(site)
    pace.allow(ROUNDS)
    assert await site.finished() == [ROUNDS] * len(WORKERS)
    for child in lives.values():
        await site.children[child].process.wait()
    for name in COORDINATORS:
        chain = site.chain(site.own_storage(name))
        assert [record.round for record in chain] == list(range(1, ROUNDS + 1))
        for record in chain:
            assert [each.worker for each in record.contributions] == list(WORKERS)
        epochs = [record.epoch for record in chain]
        assert epochs == sorted(epochs)
        assert len(set(epochs)) >= ROUNDS // ROUNDS_PER_KILL
        assert chain[-1].parameters_digest == site.undisturbed_digest(*WORKERS)
        assert not list(miscounts(site.job, chain))
