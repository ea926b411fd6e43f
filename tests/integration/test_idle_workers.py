"""What workers ask a real store while nothing changes: nothing, beside keeping their watches."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import pytest
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator.client import Endpoint, JobDirectory
from pliska.locks import Election, Session, connect
from pliska.trainer.leader_view import following
from services.consul import ConsulServer
from services.proxy import PING, ZookeeperProxy
from services.tcp_proxy import TcpProxy
from services.zookeeper import ZookeeperServer

WORKERS = ("w1", "w2", "w3", "w4")
IDLE_S = 2.0
SETTLED_S = 0.5
HEARD_S_MAX = 0.1
"""The median; to ask twice a second would not do."""
OUTAGE_S = 0.5


class Ear(Protocol):
    """Passes on what workers ask a store, and counts it."""

    host_port: str

    def asked(self) -> int:
        """How often the store was asked something, other than to wait for a change."""


class ZookeeperEar(ZookeeperProxy):
    def asked(self) -> int:
        return sum(number for kind, number in self.requests.items() if kind != PING)


class ConsulEar(TcpProxy):
    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.requests: Counter[bool] = Counter()

    def _counted(self, data: bytes) -> bytes:
        for line in data.split(b"\r\n"):
            if line.endswith(b" HTTP/1.1"):
                self.requests[b"wait=" in line] += 1
        return super()._counted(data)

    def asked(self) -> int:
        return self.requests[False]


@pytest.fixture(params=["consul", "zookeeper"])
def server(request: pytest.FixtureRequest) -> ConsulServer | ZookeeperServer:
    found: ConsulServer | ZookeeperServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def store_address(server: ConsulServer | ZookeeperServer) -> str:
    return server.fresh_address()


@pytest.fixture
def ear(server: ConsulServer | ZookeeperServer) -> Iterator[Ear]:
    kind = ConsulEar if isinstance(server, ConsulServer) else ZookeeperEar
    with kind(server.host_port) as ear:
        yield ear


async def test_idle_workers_ask_the_store_nothing(
    site: Site, server: ConsulServer | ZookeeperServer, ear: Ear
) -> None:
    site.define(toy_job(count=2, workers=5, quorum=5))
    await site.coordinator("c1")
    await site.leads("c1")
    direct = site.directory
    address = site.store.replace(server.host_port, ear.host_port)
    site.directory = JobDirectory(connect(address), site.job.name)
    for name in WORKERS:
        site.worker(name)
    # Four of five gradients are in, and everybody waits for the fifth.
    hold = site.held_worker("w5", 1)
    await site.status(
        lambda now: [each["slot"] for each in now.get("workers", ())].count("filled") == 4
    )
    await asyncio.sleep(SETTLED_S)
    before = ear.asked()
    await asyncio.sleep(IDLE_S)
    assert ear.asked() == before
    hold.go_on.set()
    assert await site.finished() == [2] * 5
    direct.backend.close()


def lead(directory: JobDirectory, name: str, session: Session) -> float:
    """Come to lead the job; return when that was."""
    endpoint = Endpoint(name, "127.0.0.1", 1, "", "key").to_bytes()
    Election(session, directory.election, name, endpoint).campaign(timeout_s=10.0)
    return time.monotonic()


async def test_a_new_leader_is_heard_of_at_once(store_address: str) -> None:
    directory = JobDirectory.at(store_address, "toy")
    delays = []
    async with asyncio.timeout(60.0), following(directory) as view:
        with Session.open(directory.backend) as session:
            await asyncio.to_thread(lead, directory, "c0", session)
            leader = await view.find(1, 60.0)
            assert leader is not None
        for number in range(1, 8):
            with Session.open(directory.backend) as session:
                led = await asyncio.to_thread(lead, directory, f"c{number}", session)
                await view.superseded(leader)
                delays.append(time.monotonic() - led)
                leader = await view.find(1, 60.0)
                assert leader is not None
                assert leader.endpoint.name == f"c{number}"
    assert sorted(delays)[len(delays) // 2] < HEARD_S_MAX, delays
    directory.backend.close()


async def test_who_came_to_lead_while_the_store_was_away_is_heard_of_when_it_is_back(
    store_address: str, server: ConsulServer | ZookeeperServer
) -> None:
    directory = JobDirectory.at(store_address, "toy")
    with TcpProxy(server.host_port) as proxy:
        address = store_address.replace(server.host_port, proxy.host_port)
        behind = JobDirectory(connect(address), "toy")
        async with asyncio.timeout(60.0), following(behind) as view:
            with Session.open(directory.backend) as session:
                await asyncio.to_thread(lead, directory, "c0", session)
                leader = await view.find(1, 60.0)
                assert leader is not None
                proxy.refuse()
            with Session.open(directory.backend) as session:
                await asyncio.to_thread(lead, directory, "c1", session)
                await asyncio.sleep(OUTAGE_S)
                assert await view.find(1, 60.0) == leader
                proxy.heal()
                await view.superseded(leader)
        behind.backend.close()
    directory.backend.close()
