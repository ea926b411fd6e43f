"""One lock shared with kazoo's recipe, and with what Curator's leaves in ZooKeeper."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock as KazooLock

from pliska.locks import (
    AcquireTimeoutError,
    Backend,
    LockError,
    LockStyle,
    LockUsageError,
    Session,
    ZookeeperLock,
    connect,
)
from services.proxy import CHANGES, Action, ZookeeperProxy
from services.zookeeper import ZookeeperServer

PATTERNS = {LockStyle.KAZOO: [], LockStyle.CURATOR: ["-lock-"]}
NAMES = {
    LockStyle.KAZOO: r"[0-9a-f]{32}__lock__\d{10}",
    LockStyle.CURATOR: r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-lock-\d{10}",
}


@pytest.fixture
def backend(own_zookeeper: ZookeeperServer) -> Iterator[Backend]:
    backend = connect(own_zookeeper.fresh_address())
    yield backend
    backend.close()


@pytest.fixture
def session(backend: Backend) -> Iterator[Session]:
    with Session.open(backend, 5.0) as session:
        yield session


@pytest.fixture
def kazoo(own_zookeeper: ZookeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(own_zookeeper.host_port)
    client.start()
    yield client
    client.stop()
    client.close()


def kazoo_lock(client: KazooClient, backend: Backend, style: LockStyle) -> KazooLock:
    root = "/" + backend.address.split("/", 3)[3]
    return client.Lock(f"{root}/app/lock", "kazoo", extra_lock_patterns=PATTERNS[style])


def wait_until(claim: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.01)


def queue_length(backend: Backend) -> int:
    return len(backend.list("app/lock").records)


@pytest.mark.parametrize("style", list(LockStyle))
def test_kazoo_and_we_exclude_each_other_in_order(
    backend: Backend, session: Session, kazoo: KazooClient, style: LockStyle
) -> None:
    ours, theirs = ZookeeperLock(session, "app/lock", style), kazoo_lock(kazoo, backend, style)
    first = ours.acquire(timeout_s=5)
    (record,) = backend.list("app/lock").records
    assert re.fullmatch(NAMES[style], record.key.rpartition("/")[2])
    assert first.guard().key == record.key
    assert not theirs.acquire(blocking=False)
    with ThreadPoolExecutor(2) as pool:
        second = pool.submit(theirs.acquire, timeout=20)
        wait_until(lambda: queue_length(backend) == 2)
        third = pool.submit(ours.acquire, 20)
        wait_until(lambda: queue_length(backend) == 3)
        assert ours.try_acquire() is None
        first.release()
        assert second.result(timeout=10)
        assert not third.done()
        theirs.release()
        grant = third.result(timeout=10)
    assert grant.token > first.token
    assert grant.held
    assert grant.release()
    assert queue_length(backend) == 0


def test_a_wait_that_ends_in_time_leaves_nothing_in_their_way(
    backend: Backend, session: Session, kazoo: KazooClient
) -> None:
    theirs = kazoo_lock(kazoo, backend, LockStyle.KAZOO)
    assert theirs.acquire()
    with pytest.raises(AcquireTimeoutError):
        ZookeeperLock(session, "app/lock").acquire(timeout_s=0.3)
    assert queue_length(backend) == 1
    theirs.release()
    with ZookeeperLock(session, "app/lock").hold(timeout_s=5) as grant:
        assert grant.held


@pytest.mark.parametrize("action", [Action.CUT_AFTER, Action.CUT_BEFORE])
def test_a_lost_answer_leaves_no_node_with_a_number_that_nobody_knows(
    backend: Backend, own_zookeeper: ZookeeperServer, action: Action
) -> None:
    with ZookeeperProxy(own_zookeeper.host_port) as proxy:
        through = backend.address.replace(own_zookeeper.host_port, proxy.host_port)
        client = connect(through)
        with Session.open(client, 5.0) as session:
            lock = ZookeeperLock(session, "app/lock")
            lock.acquire(timeout_s=5).release()
            left = [action]
            proxy.decide = lambda kind: left.pop() if kind in CHANGES and left else Action.PASS
            with pytest.raises(LockError):
                lock.acquire(timeout_s=5)
            wait_until(lambda: queue_length(backend) == 0)
            assert lock.acquire(timeout_s=5).held
        client.close()


def test_another_store_or_style_is_refused(session: Session) -> None:
    with pytest.raises(LockUsageError, match="kazoo, curator"):
        ZookeeperLock(session, "app/lock", "etcd")
    memory = connect("memory:")
    with Session.open(memory) as other, pytest.raises(LockUsageError, match="use Mutex"):
        ZookeeperLock(other, "app/lock")
