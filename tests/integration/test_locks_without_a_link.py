"""A lock whose holder is in a network namespace of its own while its link is down (S3, S4)."""

import time
from collections.abc import Iterator

import pytest

from pliska.locks import AcquireTimeoutError, Backend, FencedStore, Mutex, Session
from services.consul import ConsulServer
from services.lock_process import LockProcess
from services.missing import ServiceMissingError, skip_or_fail
from services.network_namespace import NetworkNamespace
from services.tcp_proxy import TcpProxy
from services.zookeeper import ZookeeperServer

LEASE_S = 3.0
SLACK_S = 2.0
"""What a busy machine adds."""


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    try:
        made = NetworkNamespace()
    except ServiceMissingError as error:
        skip_or_fail(error)
    with made:
        yield made


@pytest.fixture(params=["zookeeper", "consul"])
def server(request: pytest.FixtureRequest) -> ZookeeperServer | ConsulServer:
    found: ZookeeperServer | ConsulServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def address(server: ZookeeperServer | ConsulServer) -> str:
    return server.fresh_address()


@pytest.fixture
def far(
    namespace: NetworkNamespace, server: ZookeeperServer | ConsulServer, address: str
) -> Iterator[LockProcess]:
    """A client in the namespace, with a session. The servers listen on the host's loopback only."""
    with TcpProxy(server.host_port, namespace.host_address) as door:
        through_the_door = address.replace(server.host_port, door.host_port)
        process = LockProcess(through_the_door, LEASE_S, namespace.prefix)
        yield process
        process.end()


def test_a_holder_whose_link_is_down_has_lost_before_the_next_one_holds(
    far: LockProcess, backend: Backend, namespace: NetworkNamespace
) -> None:
    first = far.do("acquire", "m", 10)
    far.do("write", "x", "mine")
    with Session.open(backend) as session:
        namespace.pull()
        pulled_s = time.monotonic()
        with pytest.raises(AcquireTimeoutError):
            Mutex(session, "m").acquire(timeout_s=LEASE_S / 3)
        assert far.do("look")["held"]
        grant = Mutex(session, "m").acquire(timeout_s=2 * LEASE_S + SLACK_S)
        assert time.monotonic() - pulled_s < 2 * LEASE_S + SLACK_S
        look = far.do("look")
        assert not look["held"]
        assert look["lost"]
        assert grant.token > first["token"]
        FencedStore(backend, "fenced").write("x", b"theirs", grant.token)
        namespace.plug_in()
        assert far.do("look")["lost"]
        assert "error" in far.do("write", "x", "late")
        grant.release()


def test_a_link_that_is_down_for_less_than_the_lease_costs_no_lock(
    far: LockProcess, backend: Backend, namespace: NetworkNamespace
) -> None:
    first = far.do("acquire", "m", 10)
    namespace.pull()
    time.sleep(LEASE_S / 4)
    namespace.plug_in()
    until_s = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < until_s:
        assert far.do("look") == {"held": True, "lost": False}
        time.sleep(LEASE_S / 10)
    assert far.do("release")["released"]
    with Session.open(backend) as session, Mutex(session, "m").hold(timeout_s=5) as grant:
        assert grant.token > first["token"]
