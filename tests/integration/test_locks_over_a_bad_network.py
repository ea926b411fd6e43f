"""Locks over a network that loses, delays and cuts, on ZooKeeper and on Consul (S3, S5, S7)."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    AcquireTimeoutError,
    Backend,
    GrantLostError,
    LockError,
    Mutex,
    Session,
    StoreError,
    connect,
)
from services.consul import ConsulServer
from services.tcp_proxy import TcpProxy
from services.zookeeper import ZookeeperServer

LEASE_S = 2.0
SLACK_S = 1.5
"""What a busy machine adds."""

OpenFar = Callable[[float], Session]


@pytest.fixture(params=["zookeeper", "consul"])
def server(request: pytest.FixtureRequest) -> ZookeeperServer | ConsulServer:
    found: ZookeeperServer | ConsulServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(server: ZookeeperServer | ConsulServer) -> Iterator[TcpProxy]:
    with TcpProxy(server.host_port) as proxy:
        yield proxy


@pytest.fixture
def address(server: ZookeeperServer | ConsulServer) -> str:
    return server.fresh_address()


@pytest.fixture
def open_far(
    address: str, server: ZookeeperServer | ConsulServer, proxy: TcpProxy
) -> Iterator[OpenFar]:
    """Opens a session behind the bad network."""
    opened: list[tuple[Backend, Session]] = []

    def open_one(lease_s: float) -> Session:
        backend = connect(address.replace(server.host_port, proxy.host_port))
        opened.append((backend, Session.open(backend, lease_s)))
        return opened[-1][1]

    yield open_one
    proxy.heal()
    for backend, session in opened:
        with contextlib.suppress(LockError):
            session.close()
        backend.close()


def contenders(backend: Backend) -> int:
    return len(backend.list("locks/m/contenders").records)


def test_a_holder_cut_off_knows_within_its_lease_and_the_next_gets_the_lock(
    open_far: OpenFar, backend: Backend, proxy: TcpProxy
) -> None:
    old = Mutex(open_far(LEASE_S), "m").acquire(timeout_s=10)
    with Session.open(backend) as session, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Mutex(session, "m").acquire, 30)
        proxy.blackhole()
        cut_s = time.monotonic()
        assert old.lost.wait(10)
        assert time.monotonic() - cut_s < LEASE_S + SLACK_S / 2
        assert not old.held
        new = waiting.result(timeout=20)
        assert new.token > old.token
        proxy.heal()
        with pytest.raises(GrantLostError):
            old.check()
        assert not old.release()
        time.sleep(0.3)
        assert new.held
        new.check()


def test_connections_that_are_reset_cost_no_lock(open_far: OpenFar, proxy: TcpProxy) -> None:
    session = open_far(LEASE_S)
    grant = Mutex(session, "m").acquire(timeout_s=10)
    until_s = time.monotonic() + 1.5 * LEASE_S
    while time.monotonic() < until_s:
        proxy.reset_all()
        time.sleep(LEASE_S / 4)
        assert grant.held
    with contextlib.suppress(StoreError):  # this very call may meet the last reset
        session.backend.get("a")
    assert grant.release()


def test_a_slow_network_keeps_order_and_timeouts(
    open_far: OpenFar, backend: Backend, proxy: TcpProxy
) -> None:
    session = open_far(10.0)
    proxy.delay_s = 0.05
    with Session.open(backend) as other:
        grant = Mutex(other, "m").acquire(timeout_s=10)
        started_s = time.monotonic()
        with pytest.raises(AcquireTimeoutError):
            Mutex(session, "m").acquire(timeout_s=0.5)
        assert time.monotonic() - started_s < 0.5 + SLACK_S
        grant.release()
    far = Mutex(session, "m").acquire(timeout_s=10)
    assert far.token > grant.token


def test_no_call_waits_longer_than_it_was_told_for_a_network_that_is_dead(
    open_far: OpenFar, proxy: TcpProxy
) -> None:
    session = open_far(10.0)
    grant = Mutex(session, "other").acquire(timeout_s=10)
    proxy.blackhole()
    started_s = time.monotonic()
    with pytest.raises((StoreError, AcquireTimeoutError)):
        Mutex(session, "m").acquire(timeout_s=0.5)
    assert time.monotonic() - started_s < 1.0 + SLACK_S
    started_s = time.monotonic()
    grant.release()
    assert time.monotonic() - started_s < 2.0 + SLACK_S
    assert not grant.held


@pytest.mark.parametrize("bytes_", [1, 60, 200, 700])
def test_an_acquire_that_is_cut_leaves_nothing_behind(
    open_far: OpenFar, backend: Backend, proxy: TcpProxy, bytes_: int
) -> None:
    session = open_far(10.0)
    proxy.cut_after_bytes = bytes_
    grant = None
    with contextlib.suppress(LockError):
        grant = Mutex(session, "m").acquire(timeout_s=1.0)
    proxy.heal()
    if grant is not None:
        grant.release()
    deadline_s = time.monotonic() + 10
    while contenders(backend):
        assert time.monotonic() < deadline_s, "a record stayed behind"
        time.sleep(0.02)
    with Session.open(backend) as other:
        assert Mutex(other, "m").acquire(timeout_s=5).held
