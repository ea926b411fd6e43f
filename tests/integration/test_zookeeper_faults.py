"""ZooKeeper's servers and clients are killed, frozen, robbed and cut off (S1 to S5, S7)."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

from pliska.locks import (
    Absent,
    Backend,
    ConflictError,
    Create,
    Existing,
    ForkedProcessError,
    Grant,
    GrantLostError,
    LockError,
    Mutex,
    OutcomeUnknownError,
    Revision,
    Session,
    SessionLostError,
    StoreUnavailableError,
    connect,
)
from pliska.locks.backends.zookeeper_link import READS_BEHIND_MAX
from services.lock_process import LockProcess
from services.proxy import CHANGES, GET_DATA, READ_MANY, Action, ZookeeperProxy
from services.zookeeper import TICK_MS, ZookeeperServer, fresh_address

LEASE_S = 2.0
SLACK_S = 1.5
"""What a busy machine may add to a time that is promised."""

Connect = Callable[[], Backend]


@pytest.fixture
def address(own_zookeeper: ZookeeperServer) -> Iterator[str]:
    """An empty store on a server that answers before and after the test."""
    assert own_zookeeper.process is not None
    yield own_zookeeper.fresh_address()
    own_zookeeper.process.thaw()
    own_zookeeper.process.wait_until_ready()


@pytest.fixture
def proxy(own_zookeeper: ZookeeperServer) -> Iterator[ZookeeperProxy]:
    with ZookeeperProxy(own_zookeeper.host_port) as proxy:
        yield proxy


@pytest.fixture
def connect_to() -> Iterator[Callable[[str], Backend]]:
    """Makes clients and closes them in the end."""
    backends: list[Backend] = []

    def connect_another(address: str) -> Backend:
        backends.append(connect(address))
        return backends[-1]

    yield connect_another
    for backend in backends:
        backend.close()


@pytest.fixture
def backend(address: str, connect_to: Callable[[str], Backend]) -> Backend:
    return connect_to(address)


@pytest.fixture
def open_session() -> Iterator[Callable[[Backend, float], Session]]:
    sessions: list[Session] = []

    def open_another(backend: Backend, lease_s: float = LEASE_S) -> Session:
        sessions.append(Session.open(backend, lease_s))
        return sessions[-1]

    yield open_another
    for session in sessions:
        session.close()


def wait_until(claim: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.01)


def contenders(backend: Backend, name: str = "m") -> int:
    return len(backend.list(f"locks/{name}/contenders").records)


def through(proxy: ZookeeperProxy, address: str) -> str:
    """The same store, by way of the proxy."""
    return f"zookeeper://{proxy.host_port}/{address.split('/', 3)[3]}"


CALLS: list[Callable[[Backend], object]] = [
    lambda backend: backend.get("d/a", 0.3),
    lambda backend: backend.list("d", 0.3),
    lambda backend: backend.directories("d", 0.3),
    lambda backend: backend.create("d/new", b"", None, 0.3),
    lambda backend: backend.update("d/a", b"", Revision(1), 0.3),
    lambda backend: backend.delete("d/a", None, 0.3),
    lambda backend: backend.transact([Absent("d/b")], [Create("d/b", b"")], 0.3),
    lambda backend: backend.wait_for_change("d/a", Revision(0), 0.3),
    lambda backend: backend.open_session(LEASE_S, 0.3),
]


def test_no_call_hangs_on_a_frozen_server(
    own_zookeeper: ZookeeperServer,
    address: str,
    backend: Backend,
    connect_to: Callable[[str], Backend],
) -> None:
    assert own_zookeeper.process is not None
    record = backend.create("d/a", b"")
    session = backend.open_session(LEASE_S)
    own_zookeeper.process.freeze()
    for call in [*CALLS, lambda _: session.renew(0.3)]:
        started_s = time.monotonic()
        with pytest.raises((StoreUnavailableError, OutcomeUnknownError)):
            call(backend)
        assert time.monotonic() - started_s < 0.3 + SLACK_S
    for close in (lambda: session.close(0.3), backend.close):
        started_s = time.monotonic()
        with contextlib.suppress(StoreUnavailableError):
            close()
        assert time.monotonic() - started_s < 2 + SLACK_S
    own_zookeeper.process.thaw()
    assert connect_to(address).get("d/a") == record


def test_a_frozen_server_costs_the_lock_within_the_lease_and_nothing_else(
    own_zookeeper: ZookeeperServer,
    backend: Backend,
    open_session: Callable[[Backend], Session],
) -> None:
    assert own_zookeeper.process is not None
    grant, told = Mutex(open_session(backend), "m").acquire(), threading.Event()
    grant.on_lost(told.set)
    own_zookeeper.process.freeze()
    frozen_s = time.monotonic()
    assert told.wait(LEASE_S + SLACK_S)
    assert time.monotonic() - frozen_s <= LEASE_S + 0.1
    assert not grant.held
    own_zookeeper.process.thaw()
    later = Mutex(open_session(backend), "m").acquire(timeout_s=10)
    assert later.token > grant.token
    assert not grant.held
    assert not grant.release()
    assert later.held


def test_a_short_freeze_costs_nothing(
    own_zookeeper: ZookeeperServer,
    backend: Backend,
    open_session: Callable[..., Session],
) -> None:
    assert own_zookeeper.process is not None
    grant = Mutex(open_session(backend, 4.0), "m").acquire()
    own_zookeeper.process.freeze()
    assert not grant.lost.wait(1.0)
    own_zookeeper.process.thaw()
    assert not grant.lost.wait(4.0)
    backend.transact([grant.guard()], [Create("write", b"")])
    assert grant.release()


def test_records_sessions_and_tokens_survive_kill_9_of_the_server(
    own_zookeeper: ZookeeperServer,
    backend: Backend,
    open_session: Callable[..., Session],
) -> None:
    assert own_zookeeper.process is not None
    kept = backend.create("d/kept", b"value")
    grant = Mutex(open_session(backend, 4.0), "m").acquire()
    revision = backend.list("d").revision
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(backend.wait_for_change, "d/kept", revision, 30)
        own_zookeeper.process.restart()
        assert woken.result(timeout=10)  # whoever waits reads again after an outage
    assert backend.get("d/kept") == kept
    # A restarted server counts every lease from now on, so the holder may have lost it or not.
    if grant.held:
        backend.transact([grant.guard()], [Create("write", b"")])
        assert grant.release()
    later = Mutex(open_session(backend), "m").acquire(timeout_s=15)
    assert later.token > grant.token
    assert backend.wait_for_change("d/kept", Revision(0), 5)


def test_a_killed_holder_is_followed_within_its_lease_and_a_tick(
    address: str, backend: Backend, open_session: Callable[[Backend], Session]
) -> None:
    holder = LockProcess(address, LEASE_S)
    try:
        token = holder.do("acquire", "m", 5)["token"]
        holder.signal(signal.SIGKILL)
        killed_s = time.monotonic()
        grant = Mutex(open_session(backend), "m").acquire(timeout_s=20)
        assert time.monotonic() - killed_s < LEASE_S + 2 * TICK_MS / 1000 + SLACK_S
        assert grant.token > token
    finally:
        holder.end()


def test_a_holder_frozen_past_its_lease_knows_at_its_first_look_and_cannot_write(
    address: str, backend: Backend, open_session: Callable[[Backend], Session]
) -> None:
    holder, rival = LockProcess(address, LEASE_S), LockProcess(address, 10)
    try:
        token = holder.do("acquire", "m", 5)["token"]
        holder.do("write", "x", "before")
        holder.signal(signal.SIGSTOP)
        assert rival.do("acquire", "m", 20)["token"] > token
        rival.do("write", "x", "after")
        holder.ask("look")
        holder.signal(signal.SIGCONT)
        look = holder.answer()
        assert not look["held"]
        assert look["lost"]
        assert "error" in holder.do("write", "x", "late")
    finally:
        holder.end()
        rival.end()


def test_a_stolen_session_loses_the_lock_within_a_second(
    own_zookeeper: ZookeeperServer,
    backend: Backend,
    open_session: Callable[[Backend], Session],
) -> None:
    session = open_session(backend)
    grant, told = Mutex(session, "m").acquire(), threading.Event()
    grant.on_lost(told.set)
    link = session.backend_session.link  # type: ignore[attr-defined]
    thief = KazooClient(own_zookeeper.host_port, client_id=link.client.client_id)
    thief.start()
    thief.stop()
    thief.close()
    assert told.wait(1.0 + SLACK_S)
    assert not grant.held
    with pytest.raises(GrantLostError):
        grant.check()
    with pytest.raises(ConflictError):
        backend.transact([grant.guard()], [Create("write", b"")])
    assert session.lost.wait(LEASE_S)
    with pytest.raises(SessionLostError):
        Mutex(session, "m").acquire(timeout_s=1)


def test_a_lost_answer_to_a_creation_is_found_out(
    address: str, backend: Backend, proxy: ZookeeperProxy, connect_to: Callable[[str], Backend]
) -> None:
    client = connect_to(through(proxy, address))
    session = client.open_session(5.0)
    client.create("d/first", b"", session)
    proxy.decide = once(Action.CUT_AFTER)
    created = client.create("d/applied", b"value", session)
    assert backend.get("d/applied") == created
    proxy.decide = once(Action.CUT_BEFORE)
    with pytest.raises(StoreUnavailableError, match="not created"):
        client.create("d/not-applied", b"", session)
    assert backend.get("d/not-applied") is None
    proxy.decide = once(Action.CUT_AFTER)
    with pytest.raises(OutcomeUnknownError):
        client.create("d/nobody", b"")
    session.close(5)


@pytest.mark.parametrize("action", [Action.CUT_AFTER, Action.CUT_BEFORE, Action.SWALLOW])
def test_an_acquire_whose_answer_is_lost_leaves_nothing_behind(
    address: str,
    backend: Backend,
    proxy: ZookeeperProxy,
    connect_to: Callable[[str], Backend],
    open_session: Callable[..., Session],
    action: Action,
) -> None:
    session = open_session(connect_to(through(proxy, address)), 3.0)
    mutex = Mutex(session, "m")
    mutex.acquire().release()
    proxy.decide = once(action)
    try:
        grant = mutex.acquire(timeout_s=1.0)
    except LockError:
        pass
    else:
        assert grant.held
        assert contenders(backend) == 1
        assert grant.release()
    wait_until(lambda: contenders(backend) == 0)
    assert Mutex(open_session(backend), "m").acquire(timeout_s=5).held


@pytest.mark.parametrize("action", [Action.CUT_AFTER, Action.CUT_BEFORE, Action.SWALLOW])
def test_a_release_whose_answer_is_lost_still_frees_the_lock(
    address: str,
    backend: Backend,
    proxy: ZookeeperProxy,
    connect_to: Callable[[str], Backend],
    open_session: Callable[..., Session],
    action: Action,
) -> None:
    grant = Mutex(open_session(connect_to(through(proxy, address)), 3.0), "m").acquire()
    proxy.decide = once(action)
    grant.release()
    assert not grant.held
    wait_until(lambda: contenders(backend) == 0)


@pytest.mark.parametrize("kind", [GET_DATA, READ_MANY], ids=["watch", "look"])
@pytest.mark.parametrize("action", [Action.CUT_AFTER, Action.CUT_BEFORE, Action.SWALLOW])
def test_a_waiter_whose_watch_or_look_is_lost_still_gets_its_turn(
    address: str,
    backend: Backend,
    proxy: ZookeeperProxy,
    connect_to: Callable[[str], Backend],
    open_session: Callable[..., Session],
    kind: int,
    action: Action,
) -> None:
    first = Mutex(open_session(backend, 10.0), "m").acquire()
    waiter = Mutex(open_session(connect_to(through(proxy, address)), 10.0), "m")
    with ThreadPoolExecutor(1) as pool:
        if kind == GET_DATA:
            proxy.decide = once(action, {kind})
        waiting = pool.submit(waiter.acquire, 20)
        wait_until(lambda: contenders(backend) == 2)
        wait_until(lambda: proxy.requests[GET_DATA] > 0)
        if kind == READ_MANY:
            proxy.decide = once(action, {kind})
        assert first.release()
        grant = waiting.result(timeout=10)
    assert grant.held
    assert grant.token > first.token
    assert grant.release()
    assert contenders(backend) == 0


def test_a_waiter_keeps_its_place_over_a_broken_connection(
    address: str,
    backend: Backend,
    proxy: ZookeeperProxy,
    connect_to: Callable[[str], Backend],
    open_session: Callable[..., Session],
) -> None:
    first = Mutex(open_session(backend), "m").acquire()
    waiter = Mutex(open_session(connect_to(through(proxy, address)), 4.0), "m")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waiter.acquire, 20)
        wait_until(lambda: contenders(backend) == 2)
        key = backend.list("locks/m/contenders").records[1].key
        for _ in range(3):
            proxy.cut_all()
            time.sleep(0.2)
        first.release()
        grant = waiting.result(timeout=10)
    assert grant.guard().key == key


def test_a_forked_child_gets_an_error_at_once(
    backend: Backend, open_session: Callable[[Backend], Session]
) -> None:
    session = open_session(backend)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            backend.get("a", 1)
        except ForkedProcessError:
            try:
                session.backend_session.renew(1)
            except ForkedProcessError:
                code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert backend.get("a") is None
    session.check()


def test_an_ensemble_loses_members_one_by_one(
    own_zookeeper_ensemble: Sequence[ZookeeperServer],
    connect_to: Callable[[str], Backend],
    open_session: Callable[..., Session],
) -> None:
    """The leader first; with one server left nothing is answered and the lock is lost in time."""
    backend = connect_to(fresh_address(own_zookeeper_ensemble))
    processes = sorted(own_zookeeper_ensemble, key=lambda s: "leader" not in s.ask("srvr"))
    leader, second, _ = [server.process for server in processes]
    assert leader is not None
    assert second is not None
    grant = Mutex(open_session(backend, 4.0), "m").acquire()
    leader.kill()
    assert backend.get("after/leader", 30) is None  # reads are tried until somebody answers
    assert backend.create("after/leader", b"", None, 20).created > grant.token
    later: Grant = grant
    if not grant.held:  # electing a leader may have taken longer than the lease
        later = Mutex(open_session(backend, 4.0), "m").acquire(timeout_s=20)
        assert later.token > grant.token
    second.kill()
    killed_s = time.monotonic()
    assert later.lost.wait(4.0 + SLACK_S)
    assert time.monotonic() - killed_s < 4.0 + SLACK_S
    with pytest.raises((StoreUnavailableError, OutcomeUnknownError)):
        backend.create("without/quorum", b"", None, 0.5)
    leader.start()
    leader.wait_until_ready()
    last = Mutex(open_session(backend, 4.0), "m").acquire(timeout_s=20)
    assert last.token > later.token
    assert backend.get("after/leader") is not None


def once(action: Action, kinds: Set[int] = CHANGES) -> Callable[[int], Action]:
    """Do it to the next request of these kinds and to nothing after it."""
    is_due = threading.Event()
    is_due.set()

    def decide(kind: int) -> Action:
        if kind in kinds and is_due.is_set():
            is_due.clear()
            return action
        return Action.PASS

    return decide


@pytest.mark.parametrize("catches_up", [True, False])
def test_a_server_that_lags_behind_what_is_known_is_asked_again(
    address: str, proxy: ZookeeperProxy, connect_to: Callable[[str], Backend], catches_up: bool
) -> None:
    # The leader of an ensemble may apply a transaction after a follower has acknowledged it, and
    # answers a sync at once. Here the record is made while the server is being asked.
    ahead = connect_to(address)
    behind = connect_to(through(proxy, address))
    known = ahead.transact([], [Create("d/before", b"")])
    assert behind.get("d/before") is not None
    reads = 0

    def decide(kind: int) -> Action:
        nonlocal reads
        reads += kind == READ_MANY
        if catches_up and kind == READ_MANY and reads == 3:
            assert ahead.transact([], [Create("d/x", b"")]) == known + 1
        return Action.PASS

    proxy.decide = decide
    checks = [Existing("d/x", Revision(known + 1))]
    if catches_up:
        behind.transact(checks, [Create("d/y", b"")])
    else:
        with pytest.raises(ConflictError, match="is gone"):
            behind.transact(checks, [Create("d/y", b"")])
    # The third one's sync may be answered before the record is made, or after.
    assert reads in ((3, 4) if catches_up else (READS_BEHIND_MAX,))
