"""Coordinators are found as instances of a service, on every store, while they live."""

import asyncio
import http.client
import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from training.site import PATIENCE_S, Site

from pliska.coordinator.announcement import SERVICE
from services.commands import EXECUTABLE
from services.consul import ConsulServer
from services.zookeeper import ZookeeperServer

Roles = dict[str, tuple[str, str]]


@pytest.fixture(params=["embedded", "consul", "zookeeper"])
def store_address(request: pytest.FixtureRequest, store_address: str) -> str:
    if request.param == "embedded":
        return store_address
    server: ConsulServer | ZookeeperServer = request.getfixturevalue(request.param)
    return server.fresh_address()


async def service(site: Site, *arguments: str) -> Any:
    """What `pliska service` says, from its JSON."""
    process = await asyncio.create_subprocess_exec(
        EXECUTABLE,
        "service",
        *arguments,
        *("-o", "json", "--store", site.store),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return json.loads(out) if process.returncode == 0 else None


async def listed(site: Site, is_as_wanted: Callable[[Roles], bool]) -> Roles:
    """Wait until the coordinators are listed as wanted: tag and state by name."""
    roles: Roles = {}
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows = (await service(site, "list", SERVICE))["instances"]
            roles = {
                row["metadata"]["coordinator"]: (row["tags"][0], row["state"])
                for row in rows
                if row["metadata"]["job"] == site.job.name
            }
            if is_as_wanted(roles):
                return roles


def expect_curators_node(site: Site, name: str) -> None:
    """Check that a coordinator is an ephemeral node that Curator can read."""
    hosts, _, root = site.store.removeprefix("zookeeper://").partition("/")
    client = KazooClient(hosts)
    client.start()
    data, stat = client.get(f"/{root}/services/{SERVICE}/{site.job.name}:{name}")
    client.stop()
    client.close()
    document = json.loads(data)
    assert stat.ephemeralOwner != 0
    assert (document["name"], document["serviceType"]) == (SERVICE, "DYNAMIC")


def expect_passing_in_catalog(site: Site, name: str) -> None:
    """Check that Consul's own query for leaders finds a coordinator."""
    host_port = site.store.removeprefix("consul://").partition("/")[0]
    connection = http.client.HTTPConnection(host_port, timeout=5)
    connection.request("GET", f"/v1/health/service/{SERVICE}?passing=1&tag=leader")
    found = json.loads(connection.getresponse().read())
    connection.close()
    assert f"{SERVICE}:{site.job.name}:{name}" in {each["Service"]["ID"] for each in found}


async def test_coordinators_are_listed_with_their_roles_until_they_end(site: Site) -> None:
    for name in ("c1", "c2"):
        await site.coordinator(name, session_timeout_s=2.0)
    leader = await site.leads("c1", "c2")
    (standby,) = {"c1", "c2"} - {leader}
    wanted = {leader: ("leader", "up"), standby: ("standby", "up")}
    await listed(site, lambda roles: roles == wanted)
    resolved = (await service(site, "resolve", SERVICE))["instance"]
    assert resolved["id"] in {f"{site.job.name}:{name}" for name in ("c1", "c2")}
    if site.store.startswith("zookeeper"):
        await asyncio.to_thread(expect_curators_node, site, leader)
    if site.store.startswith("consul"):
        await asyncio.to_thread(expect_passing_in_catalog, site, leader)
    await site.processes.kill(site.children[leader])
    await listed(site, lambda roles: roles == {standby: ("leader", "up")})
    site.children[standby].may_end = True
    site.children[standby].signal(signal.SIGTERM)
    await listed(site, lambda roles: roles == {})
    assert await site.children[standby].process.wait() == 0
