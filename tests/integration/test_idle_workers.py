"""What workers ask a real store while nothing changes: nothing, beside keeping their watches."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import pytest
from training.site import Site
from training.toy_job import toy_job

from pliska.coordinator.client import JobDirectory
from pliska.locks import connect
from services.consul import ConsulServer
from services.proxy import PING, ZookeeperProxy
from services.tcp_proxy import TcpProxy
from services.zookeeper import ZookeeperServer

WORKERS = ("w1", "w2", "w3", "w4")
IDLE_S = 2.0
SETTLED_S = 0.5


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
