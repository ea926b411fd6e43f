"""A job whose records live on a real server; its leader is killed, a standby finishes."""

import pytest
from training.site import Site

from services.consul import ConsulServer
from services.zookeeper import ZookeeperServer

WORKERS = ("w1", "w2", "w3")


@pytest.fixture(params=["consul", "zookeeper"])
def store_address(request: pytest.FixtureRequest) -> str:
    server: ConsulServer | ZookeeperServer = request.getfixturevalue(request.param)
    return server.fresh_address()


async def test_a_standby_finishes_the_job_of_a_killed_leader_and_no_round_is_lost(
    site: Site,
) -> None:
    for name in ("c1", "c2"):
        await site.coordinator(name, session_timeout_s=2.0)
    leader = await site.leads("c1", "c2")
    (standby,) = {"c1", "c2"} - {leader}
    await site.stands_by(standby)
    hold = site.held_worker("w1", 4)
    site.worker("w2")
    site.worker("w3")
    await site.committed(3)
    await site.processes.kill(site.children[leader])
    hold.go_on.set()
    assert await site.leads(standby) == standby
    assert await site.finished() == [8, 8, 8]
    chain = site.chain()
    assert [record.round for record in chain] == list(range(1, 9))
    assert [{each.worker for each in record.contributions} for record in chain] == (
        [set(WORKERS)] * 8
    )
    assert chain[0].epoch < chain[-1].epoch
    assert chain[-1].parameters_digest == site.undisturbed_digest(*WORKERS)
