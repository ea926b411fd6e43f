"""Coordinators that are killed, stopped and told to go; workers that are killed.

Processes are real. The digest of the last version is compared with that of an
undisturbed run: neither a lost nor a doubled gradient could hide.
"""

import asyncio
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from training.site import PATIENCE_S, Site
from training.toy_job import toy_job

from pliska.coordinator.audit.audit import verify_job
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.checkpoint_store import CheckpointStore
from pliska.coordinator.storage.storage import LocalStorage
from pliska.coordinator.wire.job import parse_job

WORKERS = ("w1", "w2", "w3")


def expect_undisturbed(site: Site) -> None:
    """Check that every round was committed once, in order, from all workers' gradients."""
    chain = site.chain()
    assert [record.round for record in chain] == list(range(1, site.job.rounds.count + 1))
    for record in chain:
        assert [each.worker for each in record.contributions] == list(WORKERS)
    epochs = [record.epoch for record in chain]
    assert epochs == sorted(epochs)
    assert chain[-1].parameters_digest == site.undisturbed_digest(*WORKERS)


async def test_standby_finishes_the_round_in_which_the_leader_is_killed(site: Site) -> None:
    timeout_s = 3.0
    for name in ("c1", "c2"):
        await site.coordinator(name, session_timeout_s=timeout_s)
    leader = await site.leads("c1", "c2")
    await site.stands_by(*({"c1", "c2"} - {leader}))
    hold = site.held_worker("w1", 4)
    site.worker("w2")
    site.worker("w3")
    # Two of three gradients of round 4 are in when the leader dies.
    await site.status(
        lambda now: (
            now.get("round") == 4 and [w["slot"] for w in now["workers"]].count("filled") == 2
        )
    )
    killed = time.monotonic()
    await site.processes.kill(site.children[leader])
    hold.go_on.set()
    assert await site.committed(4) - killed < timeout_s + 1.0
    assert await site.finished() == [8, 8, 8]
    expect_undisturbed(site)
    assert len({record.epoch for record in site.chain()}) == 2


async def test_stopped_leader_is_replaced_changes_nothing_when_it_goes_on_and_may_lead_again(
    site: Site,
) -> None:
    for name in ("c1", "c2"):
        await site.coordinator(name, session_timeout_s=2.0)
    stopped = await site.leads("c1", "c2")
    (other,) = {"c1", "c2"} - {stopped}
    await site.stands_by(other)
    first_hold, second_hold = site.held_worker("w1", 3), site.held_worker("w2", 6)
    site.worker("w3")
    await site.status(lambda now: now.get("round") == 3)
    site.children[stopped].signal(signal.SIGSTOP)
    frozen = time.monotonic()
    first_hold.go_on.set()
    assert await site.committed(3) - frozen < 2.0 + 1.0
    assert await site.leads(other) == other
    site.children[stopped].signal(signal.SIGCONT)
    await site.stands_by(stopped)
    await site.committed(5)
    # The successor resigns at once when it is told to go, whatever its session's timeout.
    told = time.monotonic()
    site.children[other].signal(signal.SIGTERM)
    assert await site.leads(stopped) == stopped
    assert time.monotonic() - told < 1.0
    second_hold.go_on.set()
    assert await site.finished() == [8, 8, 8]
    assert await site.children[other].process.wait() == 0
    expect_undisturbed(site)
    assert len({record.epoch for record in site.chain()}) == 3


async def replaced(site: Site, epoch: int) -> None:
    """Wait until another one leads, by the store's word: one that is stopped answers nobody."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            leader = site.directory.leader()
            if leader is not None and leader.epoch != epoch:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ("write", "/checkpoints/000000000004-"),
        ("delete", "/checkpoints/000000000003-"),
    ],
)
async def test_leader_that_is_stopped_amid_its_files_spoils_none_that_the_next_one_needs(
    site: Site, how: str, part: str
) -> None:
    text = toy_job(count=9, more="[durable]\nkeep_rounds = 0\n").text
    site.define(parse_job(text.replace("every = 3", "every = 1, keep = 1"), "toy.toml"))
    script = Path(__file__).parents[1] / "training" / "stopping_coordinator.py"
    key = site.folder / "coordinator.pem"
    stopped = await site.script(
        "c1", script, site.job_file, site.store, site.storage, key, 1.0, how, part
    )
    await site.leads("c1")
    await site.coordinator("c2")
    await site.stands_by("c2")
    pace = site.paced_worker("w1")
    site.worker("w2")
    site.worker("w3")
    first = site.directory.leader()
    assert first is not None
    pace.allow(4)
    await replaced(site, first.epoch)
    pace.allow(8)
    await site.committed(7)
    stopped.signal(signal.SIGCONT)
    await site.stands_by("c1")
    pace.allow(9)
    assert await site.finished() == [9, 9, 9]
    expect_undisturbed(site)
    for name in ("c1", "c2"):
        assert await site.children[name].process.wait() == 0
    storage = LocalStorage(site.storage)
    checkpoints = CheckpointStore(storage, "toy")
    assert [checkpoints.read(place)[0].version for place in checkpoints.places()] == [9]
    keys = KeyBook.of_enrolled(site.directory.keyring.list())
    report = verify_job(storage, "toy", keys, reputation=site.job.reputation)
    assert report.is_sound, report.checks


async def test_coordinator_killed_between_log_and_commit_loses_nothing_after_a_cold_start(
    site: Site,
) -> None:
    script = Path(__file__).parents[1] / "training" / "dying_coordinator.py"
    key = str(site.folder / "coordinator.pem")
    dying = await site.script("dying", script, site.job_file, site.store, site.storage, key, 5)
    await site.leads("dying")
    for name in WORKERS:
        site.worker(name)
    dying.may_end = True
    await dying.process.wait()
    assert site.directory.committed_version() == 4
    await site.coordinator("c1")
    assert await site.finished() == [8, 8, 8]
    expect_undisturbed(site)
    entries = sorted((site.storage / "jobs" / "toy" / "log").glob("000000000005-*.entry"))
    assert len(entries) == 2, "the orphan of the dead leader, and the one that was committed"


def turned_away(now: Mapping[str, Any], name: str) -> int:
    """Count how often a worker was told that it came after the round had opened, or came twice."""
    (replies,) = [each["replies"] for each in now["workers"] if each["worker"] == name]
    return int(replies.get("BUSY", 0) + replies.get("DUPLICATE", 0))


async def test_worker_that_is_killed_and_restarted_with_its_key_works_on(site: Site) -> None:
    site.define(toy_job(quorum=2))
    await site.coordinator("c1")
    hold = site.held_worker("w1", 4)
    site.worker("w2")
    key = site.enroll("w3")
    command = ("worker", "run", "--job", "toy", "--key", str(key), "--store", site.store)
    first = await site.processes.start("w3-first", command)
    await site.committed(3)
    await site.processes.kill(first)
    before = turned_away(await site.status(lambda now: now["round"] == 4), "w3")
    second = await site.processes.start("w3-second", command)
    await site.status(lambda now: turned_away(now, "w3") > before)
    hold.go_on.set()
    assert await site.finished() == [8, 8]
    assert await second.process.wait() == 0
    incarnations = {
        contribution.incarnation
        for record in site.chain()
        for contribution in record.contributions
        if contribution.worker == "w3"
    }
    assert len(incarnations) == 2
    assert site.chain()[-1].contributions[-1].worker == "w3"
