"""Rounds that are committed several at a time: what a failover takes back, and what it does not."""

import pytest
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator.wire.job import Job, parse_job

WORKERS = ("w1", "w2", "w3")


def every_five(count: int) -> Job:
    text = toy_job(count=count).text.replace("checkpoint = { every = 3 }", "")
    settings = "checkpoint = { every = 100 }\ndurable = { every = 5, replicas = 0 }\n"
    return parse_job(settings + text, "toy.toml")


async def start(site: Site) -> tuple[str, str]:
    for name in ("c1", "c2"):
        await site.coordinator(name, session_timeout_s=2.0)
    leader = await site.leads("c1", "c2")
    (standby,) = {"c1", "c2"} - {leader}
    await site.stands_by(standby)
    return leader, standby


def expect_undisturbed(site: Site) -> None:
    chain = site.chain()
    assert [record.round for record in chain] == list(range(1, site.job.rounds.count + 1))
    assert chain[-1].parameters_digest == site.undisturbed_digest(*WORKERS)


@pytest.mark.timeout(300)
async def test_a_killed_leader_takes_back_the_rounds_since_the_last_commit(site: Site) -> None:
    site.define(every_five(12))
    leader, standby = await start(site)
    pace = site.paced_worker("w1")
    site.worker("w2")
    site.worker("w3")
    pace.allow(7)
    now = await site.status(lambda now: now.get("round") == 8)
    taken_back = now["digest"]
    assert now["committed_version"] == 5
    assert site.directory.committed_version() == 5
    await site.processes.kill(site.children[leader])
    assert await site.leads(standby) == standby
    now = await site.status(lambda now: now["leader"] == standby and "round" in now)
    assert now["round"] == 6
    assert now["digest"] != taken_back, "a version is known by its digest"
    pace.allow(12)
    assert await site.finished() == [12, 12, 12]
    expect_undisturbed(site)
    assert [record.epoch for record in site.chain()[4:6]] == sorted(
        {record.epoch for record in site.chain()}
    )


@pytest.mark.timeout(300)
async def test_a_leader_that_is_told_to_go_leaves_nothing_uncommitted(site: Site) -> None:
    site.define(every_five(9))
    leader, standby = await start(site)
    pace = site.paced_worker("w1")
    site.worker("w2")
    site.worker("w3")
    pace.allow(7)
    await site.status(lambda now: now.get("round") == 8)
    assert site.directory.committed_version() == 5
    await site.processes.stop([site.children[leader]])
    assert site.directory.committed_version() == 7
    assert await site.leads(standby) == standby
    pace.allow(9)
    assert await site.finished() == [9, 9, 9]
    expect_undisturbed(site)
