"""The pytest fixtures that hand services to tests; `tests/conftest.py` imports them.

`zookeeper` and `consul` are shared by the whole run and may be ones that were
running before: tests use a fresh address on them and leave them alone.
`own_zookeeper`, `own_consul` and the ensembles are started for one module,
which may kill and freeze them.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from services import consul as consul_service
from services import zookeeper as zookeeper_service
from services.consul import ConsulServer
from services.missing import ServiceMissingError, skip_or_fail
from services.process import ServiceProcess
from services.zookeeper import ZookeeperServer


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
def zookeeper(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZookeeperServer]:
    named = os.environ.get("PLISKA_TEST_ZOOKEEPER")
    if named:
        yield ZookeeperServer(named, None)
        return
    jars = request.getfixturevalue("zookeeper_jars")
    server = zookeeper_service.start_one(tmp_path_factory.mktemp("zookeeper"), jars)
    yield server
    server.process.kill()


@pytest.fixture(scope="module")
def own_zookeeper(
    zookeeper_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZookeeperServer]:
    server = zookeeper_service.start_one(tmp_path_factory.mktemp("zookeeper"), zookeeper_jars)
    yield server
    server.process.kill()


@pytest.fixture(scope="session")
def zookeeper_ensemble(
    zookeeper_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[ZookeeperServer]]:
    directory = tmp_path_factory.mktemp("zookeeper-ensemble")
    ensemble = zookeeper_service.start_ensemble(directory, zookeeper_jars)
    yield ensemble
    for server in ensemble:
        server.process.kill()


@pytest.fixture(scope="module")
def own_zookeeper_ensemble(
    zookeeper_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[ZookeeperServer]]:
    directory = tmp_path_factory.mktemp("zookeeper-ensemble")
    ensemble = zookeeper_service.start_ensemble(directory, zookeeper_jars)
    yield ensemble
    for server in ensemble:
        server.process.kill()


@pytest.fixture(scope="session")
def consul(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsulServer]:
    named = os.environ.get("PLISKA_TEST_CONSUL")
    if named:
        yield ConsulServer(named, None)
        return
    program = request.getfixturevalue("consul_binary")
    server = consul_service.start_one(tmp_path_factory.mktemp("consul"), program)
    yield server
    server.process.kill()


@pytest.fixture(scope="module")
def own_consul(
    consul_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsulServer]:
    server = consul_service.start_one(tmp_path_factory.mktemp("consul"), consul_binary)
    yield server
    server.process.kill()


@pytest.fixture(scope="module")
def consul_servers(
    consul_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sequence[ConsulServer]]:
    servers = consul_service.start_three(tmp_path_factory.mktemp("consul-three"), consul_binary)
    yield servers
    for server in servers:
        server.process.kill()


def _processes(used: object) -> list[ServiceProcess]:
    servers = used if isinstance(used, (list, tuple)) else [used]
    return [
        server.process
        for server in servers
        if isinstance(server, (ZookeeperServer, ConsulServer)) and server.process is not None
    ]
