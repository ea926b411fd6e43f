"""Feeds and the views behind them while servers are killed, frozen and away."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.discovery import ConfigStore, ConfigView
from pliska.locks import Backend, LockError, StoreUnavailableError, connect
from pliska.locks.backends.base import ChangeFeed
from pliska.locks.backends.consul import ConsulBackend
from pliska.locks.backends.consul_feed import QUERIES_MAX
from services.consul import ConsulServer
from services.process import ServiceProcess
from services.tcp_proxy import TcpProxy
from services.waiting import wait_until
from services.zookeeper import ZookeeperServer

PATIENCE_S = 30.0


@pytest.fixture(params=["own_zookeeper", "own_consul"])
def server(request: pytest.FixtureRequest) -> Iterator[ZookeeperServer | ConsulServer]:
    """A server that answers before and after the test."""
    server: ZookeeperServer | ConsulServer = request.getfixturevalue(request.param)
    assert server.process is not None
    yield server
    server.process.thaw()
    server.process.wait_until_ready()


@pytest.fixture
def process(server: ZookeeperServer | ConsulServer) -> ServiceProcess:
    assert server.process is not None
    return server.process


@pytest.fixture
def address(server: ZookeeperServer | ConsulServer) -> str:
    return server.fresh_address()


@pytest.fixture
def feed(backend: Backend) -> Iterator[ChangeFeed]:
    feed = backend.open_feed()
    yield feed
    feed.close()


def hear_of(feed: ChangeFeed, *paths: str) -> None:
    """Wait, through errors, until the feed has named all of these paths."""
    missing, until_s = set(paths), time.monotonic() + PATIENCE_S
    while missing:
        assert time.monotonic() < until_s, f"not heard of {missing}"
        try:
            missing -= feed.wait(until_s - time.monotonic()).keys()
        except LockError:
            time.sleep(0.05)


def test_what_changes_after_a_restart_of_the_server_is_heard_of(
    backend: Backend, feed: ChangeFeed, process: ServiceProcess
) -> None:
    record = backend.create("d/a", b"")
    feed.follow("d")
    feed.follow("e")
    hear_of(feed, "d", "e")
    process.restart()
    backend.update("d/a", b"2", record.modified)
    backend.create("e/a", b"")
    hear_of(feed, "d", "e")
    backend.delete("d/a")
    hear_of(feed, "d")


def test_what_changes_while_a_wait_outlives_a_restart_is_heard_of(
    backend: Backend, feed: ChangeFeed, process: ServiceProcess
) -> None:
    feed.follow("d")
    hear_of(feed, "d")
    with ThreadPoolExecutor(1) as pool:
        hearing = pool.submit(hear_of, feed, "d", "e")
        process.restart()
        backend.create("d/a", b"")
        feed.follow("e")
        hearing.result(timeout=PATIENCE_S)


def test_a_frozen_server_keeps_no_wait_beyond_its_time(
    feed: ChangeFeed, process: ServiceProcess
) -> None:
    feed.follow("d")
    hear_of(feed, "d")
    process.freeze()
    feed.follow("e")
    for _ in range(3):
        started_s = time.monotonic()
        try:
            heard = feed.wait(0.6)
        except StoreUnavailableError:
            heard = {}
        assert "e" not in heard
        assert time.monotonic() - started_s < 1.5
    process.thaw()
    hear_of(feed, "e")


def test_a_view_outlives_a_frozen_server_and_ends_with_the_truth(
    backend: Backend, process: ServiceProcess
) -> None:
    config = ConfigStore(backend)
    config.set("key", 1)
    with ConfigView(backend) as view:
        wait_until(lambda: view.value("key") == 1)
        process.freeze()
        wait_until(lambda: view.get("key").is_stale)
        process.thaw()
        wait_until(lambda: not view.get("key").is_stale)
        config.set("key", 2)
        wait_until(lambda: view.value("key") == 2)


def test_many_paths_take_few_connections_to_consul(consul: ConsulServer) -> None:
    with TcpProxy(consul.host_port) as proxy:
        backend = connect(consul.fresh_address().replace(consul.host_port, proxy.host_port))
        assert isinstance(backend, ConsulBackend)
        feed = backend.open_feed()
        paths = {f"d{number}" for number in range(4 * QUERIES_MAX)}
        threads = threading.active_count()
        for path in paths:
            feed.follow(path)
        hear_of(feed, *paths)
        backend.create("d7/a", b"")
        hear_of(feed, "d7")
        assert len(proxy._connections) / 2 <= QUERIES_MAX + 2
        ours = threading.active_count() - threads - len(proxy._connections)
        assert ours <= 0
        feed.close()
        backend.close()
