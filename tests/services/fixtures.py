"""The pytest fixtures that hand services to tests; `tests/conftest.py` imports them.

`zookeeper` and `consul` are shared by the whole run and may be ones that were
running before: tests use a fresh address on them and leave them alone.
`own_zookeeper`, `own_consul` and the ensembles are started for one module,
which may kill and freeze them.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from services import consul as consul_service
from services import oci_registry as oci_service
from services import zookeeper as zookeeper_service
from services.consul import ConsulServer
from services.missing import ServiceMissingError, skip_or_fail
from services.oci_registry import OciRegistry
from services.process import ServiceProcess
from services.zookeeper import ZookeeperServer

ServerT = TypeVar("ServerT", ZookeeperServer, ConsulServer)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the ends of the logs of the servers that a failed test used."""
    report = yield
    if report.failed:
        for name, server in getattr(item, "funcargs", {}).items():
            for process in _processes(server):
                report.sections.append((f"log of {name}", process.tail()))
    return report


@pytest.fixture(scope="session")
def zookeeper_jars() -> str:
    try:
        return zookeeper_service.classpath()
    except ServiceMissingError as error:
        skip_or_fail(error)


@pytest.fixture(scope="session")
def consul_binary() -> Path:
    try:
        return consul_service.binary()
    except ServiceMissingError as error:
        skip_or_fail(error)


@pytest.fixture(scope="session")
def oci_binary() -> Path:
    try:
        return oci_service.binary()
    except ServiceMissingError as error:
        skip_or_fail(error)


@pytest.fixture(scope="session")
def oci_registry(
    oci_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OciRegistry]:
    """A registry that lets everybody do everything; tests use names of their own in it."""
    registry = oci_service.start(tmp_path_factory.mktemp("oci"), oci_binary)
    yield registry
    registry.process.kill()


@pytest.fixture(scope="session")
def zookeeper(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZookeeperServer]:
    named = os.environ.get("PLISKA_TEST_ZOOKEEPER")
    if named:
        yield ZookeeperServer(named, None)
        return
    yield from _one_zookeeper(request.getfixturevalue("zookeeper_jars"), tmp_path_factory)


@pytest.fixture(scope="module")
def own_zookeeper(
    zookeeper_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZookeeperServer]:
    yield from _one_zookeeper(zookeeper_jars, tmp_path_factory)


@pytest.fixture(scope="session")
def zookeeper_ensemble(
    zookeeper_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[ZookeeperServer]]:
    yield from _three_zookeepers(zookeeper_jars, tmp_path_factory)


@pytest.fixture(scope="module")
def own_zookeeper_ensemble(
    zookeeper_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[ZookeeperServer]]:
    yield from _three_zookeepers(zookeeper_jars, tmp_path_factory)


@pytest.fixture(scope="session")
def consul(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsulServer]:
    named = os.environ.get("PLISKA_TEST_CONSUL")
    if named:
        yield ConsulServer(named, None)
        return
    yield from _one_consul(request.getfixturevalue("consul_binary"), tmp_path_factory)


@pytest.fixture(scope="module")
def own_consul(
    consul_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsulServer]:
    yield from _one_consul(consul_binary, tmp_path_factory)


@pytest.fixture(scope="module")
def consul_servers(
    consul_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[ConsulServer]]:
    directory = tmp_path_factory.mktemp("consul-three")
    with _ending(consul_service.start_three(directory, consul_binary)) as servers:
        yield servers


def _one_zookeeper(jars: str, factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    with _ending([zookeeper_service.start_one(factory.mktemp("zookeeper"), jars)]) as (server,):
        yield server


def _three_zookeepers(
    jars: str, factory: pytest.TempPathFactory
) -> Iterator[Sequence[ZookeeperServer]]:
    directory = factory.mktemp("zookeeper-ensemble")
    with _ending(zookeeper_service.start_ensemble(directory, jars)) as ensemble:
        yield ensemble


def _one_consul(program: Path, factory: pytest.TempPathFactory) -> Iterator[ConsulServer]:
    with _ending([consul_service.start_one(factory.mktemp("consul"), program)]) as (server,):
        yield server


@contextmanager
def _ending(servers: Sequence[ServerT]) -> Iterator[Sequence[ServerT]]:
    """Kill the servers in the end."""
    yield servers
    for process in _processes(servers):
        process.kill()


def _processes(used: object) -> list[ServiceProcess]:
    servers = used if isinstance(used, (list, tuple)) else [used]
    return [
        server.process
        for server in servers
        if isinstance(server, (ZookeeperServer, ConsulServer, OciRegistry))
        and server.process is not None
    ]
