"""A running job is put back on an older version by the command; its leader may die meanwhile.

Coordinators and commands are processes. What the job comes to is computed again in
this process, as if training had gone on from the restored version alone.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import training.dying_coordinator
from training.site import PATIENCE_S, Pace, Site
from training.toy_job import toy_job

from pliska.coordinator.audit import verify_job
from pliska.coordinator.audit_keys import KeyBook
from pliska.coordinator.audit_replay import Replay
from pliska.coordinator.commit import CommitRecord
from pliska.coordinator.history import committed_history
from pliska.coordinator.recovery import recover
from pliska.coordinator.rollback import Undone
from pliska.coordinator.storage import LocalStorage
from services.consul import ConsulServer
from services.zookeeper import ZookeeperServer

WORKERS = ("w1", "w2", "w3")
ROUNDS = 16
TARGET, LAST = 4, 9


def define(site: Site, *, quorum: int = 3, more: str = "") -> None:
    kept = "[audit]\nkeep_rounds = 1000\n"
    site.define(toy_job(count=ROUNDS, quorum=quorum, more=kept + more))


async def roll_back(site: Site, *more: str, code: int = 0) -> dict[str, Any]:
    """Run the command; return what it printed as data."""
    words = ["model", "rollback", "toy", "--scope", "training", "--actor", "ann@test"]
    words += ["--store", site.store, "--artifacts", str(site.folder / "artifacts")]
    name = f"rollback-{len(list(site.folder.glob('logs/rollback-*')))}"
    child = await site.processes.start(name, [*words, *more, "-o", "json"])
    assert await child.process.wait() == code
    text = (site.folder / "logs" / f"{name}.log").read_text()
    start, end = text.find("{"), text.rfind("}") + 1
    return dict(json.loads(text[start:end])) if end else {}


def until_ordered(site: Site) -> None:
    backend, key = site.directory.backend, site.directory.rollback_key
    until = time.monotonic() + PATIENCE_S
    while backend.get(key) is None:
        assert time.monotonic() < until, "no rollback was ordered"
        backend.wait_for_change(key, 0, 1.0)


async def workers_at(site: Site, version: int) -> list[Pace]:
    """Start workers that train up to a version, and are on the next round then."""
    paces = [site.paced_worker(name) for name in WORKERS]
    for pace in paces:
        pace.allow(version)
    await site.committed(version)
    return paces


def expect_restored(chain: Sequence[CommitRecord], target: int, version: int) -> None:
    """Check that a version has the state of its target, bit for bit, and the data goes on there."""
    restored, record = chain[target - 1], chain[version - 1]
    assert record.rollback is not None
    assert record.rollback.target == target
    assert record.state_digest == restored.state_digest
    assert record.parameters_digest == restored.parameters_digest
    assert record.cursor == restored.cursor
    assert record.base_digest == chain[version - 2].parameters_digest
    assert [each.version for each in chain[-1].undone] == [version]


def leases(records: Sequence[CommitRecord]) -> list[dict[str, int]]:
    return [{each.worker: each.lease for each in record.contributions} for record in records]


def expect_trained_from(site: Site, chain: Sequence[CommitRecord], target: int, at: int) -> None:
    """Train in this process along the rounds that count; the last model must be the same."""
    counted = [*chain[:target], *chain[at:]]
    assert site.trained_digest(leases(counted)) == chain[-1].parameters_digest


def expect_sound(site: Site, storage: Path) -> None:
    """Verify every file and compute every round again."""
    commits = committed_history(site.directory, str(storage))
    files = LocalStorage(storage)
    keys = KeyBook.of_enrolled(site.directory.keyring.list())
    report = verify_job(files, "toy", keys, commits[-1], site.job.reputation)
    assert report.is_sound, report.checks
    replay = Replay(site.job, files)
    replayed = [each for run in replay.runs(commits) for each in replay.rounds(run)]
    assert [each.differences for each in replayed] == [()] * (len(commits) - 1)
    cold = recover(site.job, commits[-1], files)
    assert cold.model.state_digest() == commits[-1].record.state_digest


@pytest.fixture(params=["embedded", "consul", "zookeeper"])
def store_address(request: pytest.FixtureRequest, store_address: str) -> str:
    if request.param == "embedded":
        return store_address
    server: ConsulServer | ZookeeperServer = request.getfixturevalue(request.param)
    return server.fresh_address()


async def test_a_job_that_is_rolled_back_trains_as_if_it_had_begun_at_the_restored_version(
    site: Site,
) -> None:
    define(site)
    await site.coordinator("c1")
    paces = await workers_at(site, LAST)
    order = ("--to-round", str(TARGET), "--reason", "the loss went up")
    planned = await roll_back(site, *order, "--dry-run")
    assert planned["committed"] is False
    assert (planned["undone_first"], planned["undone_last"]) == (TARGET + 1, LAST)
    assert site.directory.committed_version() == LAST
    done = await roll_back(site, *order)
    assert (done["target"], done["version"], done["training_epoch"]) == (TARGET, LAST + 1, 1)
    # What the workers had begun for round 10 is in flight: it comes when its base is undone.
    for pace in paces:
        pace.allow(ROUNDS)
    assert await site.finished() == [ROUNDS] * 3
    again = await roll_back(site, *order)
    assert again == done
    chain = site.chain()
    assert [record.round for record in chain] == list(range(1, ROUNDS + 1))
    expect_restored(chain, TARGET, LAST + 1)
    assert chain[-1].undone == (Undone(TARGET, LAST + 1),)
    expect_trained_from(site, chain, TARGET, LAST + 1)
    expect_sound(site, site.storage)


@pytest.mark.parametrize("store_address", ["embedded", "zookeeper"], indirect=True)
@pytest.mark.parametrize("moment", ["ordered", "logged", "committed"])
async def test_a_leader_that_is_killed_meanwhile_leaves_a_job_that_is_rolled_back_once(
    site: Site, moment: str
) -> None:
    define(site)
    order = ("--to-round", str(TARGET), "--reason", "poison", "--timeout", "120")
    if moment == "logged":
        # Its entry is durable when it dies, and it is not committed: another leader decides.
        second = site.storage
        await site.coordinator("c1", session_timeout_s=2.0)
        await site.leads("c1")
        paces = await workers_at(site, LAST)
        key, script = site.folder / "coordinator.pem", training.dying_coordinator.__file__
        dying = await site.script("dying", script, site.job_file, site.store, second, key, LAST + 1)
        await site.stands_by("dying")
        await site.processes.kill(site.children["c1"])
        ordering = asyncio.create_task(roll_back(site, *order))
        await dying.process.wait()
        await site.coordinator("c2", session_timeout_s=2.0)
    else:
        for name in ("c1", "c2"):
            await site.coordinator(name, session_timeout_s=2.0, storage=site.own_storage(name))
        leader = await site.leads("c1", "c2")
        (standby,) = {"c1", "c2"} - {leader}
        await site.stands_by(standby)
        second = site.own_storage(standby)
        paces = await workers_at(site, LAST)
        ordering = asyncio.create_task(roll_back(site, *order))
        if moment == "ordered":
            await asyncio.to_thread(until_ordered, site)
        else:
            await site.committed(LAST + 1)
        await site.processes.kill(site.children[leader])
    done = await ordering
    assert (done["version"], done["training_epoch"]) == (LAST + 1, 1)
    for pace in paces:
        pace.allow(ROUNDS)
    assert await site.finished() == [ROUNDS] * 3
    chain = site.chain(second)
    assert [record.version for record in chain if record.rollback] == [LAST + 1]
    expect_restored(chain, TARGET, LAST + 1)
    expect_trained_from(site, chain, TARGET, LAST + 1)
    head = committed_history(site.directory, str(second))[-1]
    assert recover(site.job, head, LocalStorage(second)).version == ROUNDS
