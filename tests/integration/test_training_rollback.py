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

from pliska.coordinator.audit.audit import verify_job
from pliska.coordinator.audit.replay import Replay
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.commit import CommitRecord
from pliska.coordinator.records.history import committed_history
from pliska.coordinator.records.horizon import read_horizon
from pliska.coordinator.records.rollback import Undone
from pliska.coordinator.records.standing import StandingState
from pliska.coordinator.registry import (
    Lineage,
    PromoteRequest,
    RefusedError,
    Registry,
    State,
    Tensor,
    Wait,
)
from pliska.coordinator.registry.requests import new_op_id
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.rollback_order import RollbackOrder, place_order, read_order
from pliska.coordinator.storage.address import open_storage
from pliska.coordinator.storage.storage import LocalStorage
from services.consul import ConsulServer
from services.zookeeper import ZookeeperServer

WORKERS = ("w1", "w2", "w3")
ROUNDS = 16
TARGET, LAST = 4, 9


def define(site: Site, *, count: int = ROUNDS, more: str = "", **changes: Any) -> None:
    kept = "[audit]\nkeep_rounds = 1000\n"
    site.define(toy_job(count=count, more=kept + more, **changes))


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
    await roll_back(site, "--to-round", "12", "--reason", "too late", code=7)
    chain = site.chain()
    assert [record.round for record in chain] == list(range(1, ROUNDS + 1))
    expect_restored(chain, TARGET, LAST + 1)
    assert chain[-1].undone == (Undone(TARGET, LAST + 1),)
    expect_trained_from(site, chain, TARGET, LAST + 1)
    expect_sound(site, site.storage)


@pytest.mark.parametrize(
    ("store_address", "moment"),
    [
        ("embedded", "ordered"),
        ("embedded", "logged"),
        ("embedded", "committed"),
        ("zookeeper", "logged"),
    ],
    indirect=["store_address"],
)
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
        await site.follow(standby)
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


MODES = """
[hybrid]
buffer = 3
staleness_max = 6

[asynchronous]
buffers = 3
staleness_max = 6
"""


@pytest.mark.parametrize("store_address", ["embedded"], indirect=True)
@pytest.mark.parametrize("mode", ["asynchronous", "hybrid"])
async def test_late_gradients_on_what_was_undone_never_count_and_the_job_goes_on(
    site: Site, mode: str
) -> None:
    more = f'{MODES}\n[mode]\nstart = "{mode}"\n'
    define(site, count=60, workers=4, soft_deadline_s=0.05, deadline_s=5.0, more=more)
    await site.coordinator("c1")
    for name in WORKERS:
        site.slow_worker(name, 0.03)
    site.slow_worker("w4", 0.2)
    await site.committed(12)
    done = await roll_back(site, "--to-round", "6", "--reason", "poison")
    assert await site.finished() == [60] * 4
    chain = site.chain()
    version = done["version"]
    expect_restored(chain, 6, version)
    for record in chain[version:]:
        bases = [record.round - each.lag - 1 for each in record.contributions]
        assert min(bases) >= version, "a gradient on an undone version was counted"
    late = [each for record in chain[version:] for each in record.contributions if each.lag]
    assert late, "late gradients counted again once they were on the restored version"
    expect_sound(site, site.storage)


@pytest.mark.parametrize("store_address", ["embedded"], indirect=True)
async def test_a_worker_that_is_excluded_counts_no_more_and_is_told_why(site: Site) -> None:
    define(site, quorum=2, soft_deadline_s=1.0)
    await site.coordinator("c1")
    paces = await workers_at(site, LAST)
    why = ("--reason", "w3 sends poison", "--exclude", "w3")
    done = await roll_back(site, "--to-round", str(TARGET), *why)
    assert done["excluded"] == ["w3"]
    for pace in paces:
        pace.allow(LAST + 3)
    status = await site.status(lambda now: now.get("version") == LAST + 3)
    by_name = {each["worker"]: each for each in status["workers"]}
    assert by_name["w3"]["standing"] == "excluded"
    assert by_name["w3"]["quarantine"].endswith("ann@test: w3 sends poison")
    assert status["training_epoch"] == 1
    for pace in paces:
        pace.allow(ROUNDS)
    await asyncio.gather(*site.tasks[:2])
    chain = site.chain()
    (change,) = chain[LAST].changes
    assert (change.worker, change.after) == ("w3", StandingState.EXCLUDED)
    for record in chain[LAST + 1 :]:
        assert [each.worker for each in record.contributions] == ["w1", "w2"]
    expect_trained_from(site, chain, TARGET, LAST + 1)
    expect_sound(site, site.storage)


@pytest.mark.parametrize("store_address", ["embedded"], indirect=True)
async def test_what_cannot_be_restored_is_refused_and_the_job_goes_on(site: Site) -> None:
    site.define(toy_job(count=ROUNDS, more="[durable]\nkeep_rounds = 1\n"))
    await site.coordinator("c1")
    paces = await workers_at(site, 13)
    await site.status(lambda _: read_horizon(site.directory) > 2)
    why = ("--reason", "poison")
    await roll_back(site, "--to-round", "2", *why, code=7)
    await roll_back(site, "--to-round", "13", *why, code=7)
    await roll_back(site, "--to-round", "12", "--to", "1", *why, code=2)
    await roll_back(site, "--to-round", "12", "--job", "other", *why, code=3)
    # Whoever asks the store alone is refused by the leader.
    order = RollbackOrder(number=1, target=2, actor="ann", reason="poison")
    place_order(site.directory, order)
    await site.status(lambda _: getattr(read_order(site.directory), "refused", "") != "")
    refused = read_order(site.directory)
    assert refused is not None
    assert refused.refused.startswith("version 2 is behind the horizon")
    for pace in paces:
        pace.allow(ROUNDS)
    assert await site.finished() == [ROUNDS] * 3
    assert not any(record.rollback for record in site.chain())


def promotion(version: int) -> PromoteRequest:
    return PromoteRequest(
        model="toy",
        alias="prod",
        version=version,
        actor="ann",
        reason="",
        expect_gen=None,
        op_id=new_op_id(),
        wait=Wait.NONE,
        timeout_s=10,
    )


@pytest.mark.parametrize("store_address", ["embedded"], indirect=True)
async def test_versions_registered_from_undone_rounds_are_tainted(site: Site) -> None:
    define(site)
    await site.coordinator("c1")
    paces = await workers_at(site, LAST)
    artifacts = open_storage(str(site.folder / "artifacts"))
    registry = Registry(site.directory.backend, artifacts, "default")
    for number, (last, parent) in enumerate([(3, None), (7, None), (2, 2), (9, None)], start=1):
        tensor = Tensor.of_bytes("U8", (1,), bytes([number]))
        lineage = Lineage(job="toy", rounds=(1, last), parent=parent)
        registered = registry.register("toy", {"t": tensor}, actor="ann", lineage=lineage)
        assert registered.version.version == number
    done = await roll_back(site, "--to", "1", "--reason", "poison")
    assert (done["target"], done["tainted"]) == (3, ["toy:2", "toy:4"])
    states = {each.version: each.state for each in registry.versions("toy")}
    assert [number for number in states if states[number] is State.QUARANTINED] == [2, 4]
    assert registry.versions("toy")[1].state_reason.startswith("TAINTED: job toy was rolled back")
    for number in (2, 3, 4):  # the third was trained from the second
        with pytest.raises(RefusedError):
            registry.promote(promotion(number))
    registry.promote(promotion(1))
    for pace in paces:
        pace.allow(ROUNDS)
    assert await site.finished() == [ROUNDS] * 3
