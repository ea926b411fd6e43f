"""The stores that the contract suites run against; a new backend is one more entry here."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pliska.locks import Backend, Session, connect
from services.consul import ConsulServer
from services.zookeeper import ZookeeperServer, fresh_address

Connect = Callable[[], Backend]
OpenSession = Callable[..., Session]

SERVED = ("consul", "zookeeper")
"""Stores on a server; the fixture that starts it has the same name."""
REPLICATED = ("consul_servers", "zookeeper_ensemble")
"""Stores on three servers, for the tests marked `replicated`. A client of ZooKeeper takes any of
them, one of Consul the last, which may follow another."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on every store, and the marked ones on replicated stores too."""
    if "store" in metafunc.fixturenames:
        is_replicated = metafunc.definition.get_closest_marker("replicated") is not None
        stores = ["memory", "embedded", *SERVED, *(REPLICATED if is_replicated else ())]
        metafunc.parametrize("store", stores)


@pytest.fixture
def address(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> str:
    """The address of an empty store."""
    if store in SERVED:
        server: ConsulServer | ZookeeperServer = request.getfixturevalue(store)
        return server.fresh_address()
    if store == "consul_servers":
        agents: Sequence[ConsulServer] = request.getfixturevalue(store)
        return agents[-1].fresh_address()
    if store == "zookeeper_ensemble":
        servers: Sequence[ZookeeperServer] = request.getfixturevalue(store)
        return fresh_address(servers)
    return {
        "memory": f"memory:{tmp_path.name}-{request.node.name}",
        "embedded": f"embedded:{tmp_path / 'store'}",
    }[store]


@pytest.fixture
def connect_store(address: str) -> Iterator[Connect]:
    """Makes another client of the same store."""
    backends: list[Backend] = []

    def connect_another() -> Backend:
        backends.append(connect(address))
        return backends[-1]

    yield connect_another
    for backend in backends:
        backend.close()


@pytest.fixture
def backend(connect_store: Connect) -> Backend:
    return connect_store()


@pytest.fixture
def open_session(connect_store: Connect) -> Iterator[OpenSession]:
    """Opens a session on a client of its own, as another process would."""
    sessions: list[Session] = []

    def open_another(lease_s: float = 10.0) -> Session:
        sessions.append(Session.open(connect_store(), lease_s))
        return sessions[-1]

    yield open_another
    for session in sessions:
        session.close()
