"""How many requests ZooKeeper gets: 20 waiters cause no herd, and waiting costs nothing."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import Backend, Grant, Mutex, Session, break_lock, connect
from pliska.locks.session import INSPECTION_S
from services.proxy import PING, ZookeeperProxy
from services.zookeeper import ZookeeperServer

HANDOVER_REQUESTS_MAX = 3
"""Delete; then the next one's read of the names and of its own record, and of those of others."""
BACKGROUND_REQUESTS_PER_S = 5
"""Renewals, and the keeper's look at what is held."""


@pytest.fixture
def proxy(own_zookeeper: ZookeeperServer) -> Iterator[ZookeeperProxy]:
    with ZookeeperProxy(own_zookeeper.host_port) as proxy:
        yield proxy


@pytest.fixture
def backend(proxy: ZookeeperProxy, own_zookeeper: ZookeeperServer) -> Iterator[Backend]:
    address = own_zookeeper.fresh_address().replace(own_zookeeper.host_port, proxy.host_port)
    backend = connect(address)
    yield backend
    backend.close()


def wait_until(claim: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.002)


def count(proxy: ZookeeperProxy) -> int:
    return sum(number for kind, number in proxy.requests.items() if kind != PING)


@pytest.mark.parametrize("waiters", [2, 20])
def test_a_hand_over_takes_as_many_requests_for_twenty_waiters_as_for_two(
    backend: Backend, proxy: ZookeeperProxy, waiters: int
) -> None:
    grants: list[Grant] = []
    with Session.open(backend, 30.0) as session, ThreadPoolExecutor(waiters) as pool:
        mutex = Mutex(session, "m")
        first = mutex.acquire()
        for number in range(waiters):
            pool.submit(lambda: grants.append(mutex.acquire(timeout_s=60)))
            wait_until(lambda expected=number + 2: queue_length(backend) == expected)  # type: ignore[misc]
        wait_until_quiet(proxy)
        before, started_s = count(proxy), time.monotonic()
        first.release()
        for number in range(waiters):
            wait_until(lambda expected=number + 1: len(grants) == expected)  # type: ignore[misc]
            grants[number].release()
        wait_until_quiet(proxy)
        spent = count(proxy) - before
        background = BACKGROUND_REQUESTS_PER_S * (time.monotonic() - started_s)
    assert spent <= HANDOVER_REQUESTS_MAX * waiters + background


def test_waiting_again_for_what_has_not_changed_asks_nothing(
    backend: Backend, proxy: ZookeeperProxy
) -> None:
    backend.create("d/a", b"")
    revision = backend.list("d").revision
    assert not backend.wait_for_change("d", revision, 0.01)
    before = count(proxy)
    for _ in range(20):
        assert not backend.wait_for_change("d", revision, 0.01)
    assert count(proxy) == before
    later = backend.create("d/b", b"")
    assert backend.wait_for_change("d", revision, 10)
    listing = backend.list("d")
    before = count(proxy)
    assert listing.revision >= later.created
    for _ in range(20):
        assert not backend.wait_for_change("d", listing.revision, 0.01)
    assert count(proxy) == before


def test_a_lock_that_is_held_for_long_asks_nothing(backend: Backend, proxy: ZookeeperProxy) -> None:
    with Session.open(backend, 60.0) as session:
        grant = Mutex(session, "m").acquire()
        time.sleep(3 * INSPECTION_S)  # until its record is watched
        before = count(proxy)
        time.sleep(3 * INSPECTION_S)
        assert count(proxy) == before
        broken_s = time.monotonic()
        assert break_lock(backend, "m")
        assert grant.lost.wait(5)
        assert time.monotonic() - broken_s < 1.0
        assert not grant.held


def queue_length(backend: Backend) -> int:
    return len(backend.list("locks/m/contenders").records)


def wait_until_quiet(proxy: ZookeeperProxy) -> None:
    """Wait until whoever queued up or was woken has read and sleeps."""
    last = -1
    while last != (last := count(proxy)):
        time.sleep(0.15)
