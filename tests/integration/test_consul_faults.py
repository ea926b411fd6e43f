"""Locks on a Consul agent that is frozen, killed or taken away, and among clients that are."""

import http.client
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    AcquireTimeoutError,
    Backend,
    Create,
    FencedStore,
    GrantLostError,
    Mutex,
    OutcomeUnknownError,
    Revision,
    Session,
    StaleTokenError,
    StoreError,
    StoreUnavailableError,
    connect,
)
from services.consul import ConsulServer
from services.lock_process import NewProcess
from services.process import ServiceProcess

CONTENDERS = "locks/m/contenders"
LEASE_S = 1.0


@pytest.fixture
def address(own_consul: ConsulServer) -> str:
    return own_consul.fresh_address()


@pytest.fixture
def agent(own_consul: ConsulServer) -> Iterator[ServiceProcess]:
    """The agent's process, which runs again after the test."""
    assert own_consul.process is not None
    yield own_consul.process
    own_consul.process.thaw()


def wait_for_contenders(backend: Backend, count: int, timeout_s: float = 10.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while len(backend.list(CONTENDERS).records) != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def operator_destroys(server: ConsulServer, session_id: str) -> None:
    connection = http.client.HTTPConnection(server.host_port, timeout=5)
    connection.request("PUT", f"/v1/session/destroy/{session_id}")
    assert connection.getresponse().status == 200
    connection.close()


CALLS: list[tuple[Callable[[Backend], object], type[StoreError]]] = [
    (lambda backend: backend.get("a", 0.5), StoreUnavailableError),
    (lambda backend: backend.list("a", 0.5), StoreUnavailableError),
    (lambda backend: backend.directories("a", 0.5), StoreUnavailableError),
    (lambda backend: backend.create("a", b"", timeout_s=0.5), OutcomeUnknownError),
    (lambda backend: backend.delete("a", timeout_s=0.5), OutcomeUnknownError),
    (lambda backend: backend.open_session(10, 0.5), StoreUnavailableError),
    (lambda backend: backend.wait_for_change("a", Revision(10**9), 0.0), StoreUnavailableError),
]


def test_a_frozen_agent_keeps_no_call_beyond_its_time(
    backend: Backend, agent: ServiceProcess
) -> None:
    backend.create("b/warm", b"")
    agent.freeze()
    for call, error in CALLS:
        started_s = time.monotonic()
        with pytest.raises(error):
            call(backend)
        assert time.monotonic() - started_s < 0.5 + 0.3
    agent.thaw()
    assert backend.get("b/warm") is not None


def test_a_frozen_agent_keeps_no_wait_much_beyond_its_time(
    backend: Backend, agent: ServiceProcess
) -> None:
    revision = backend.list("d").revision
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(backend.wait_for_change, "d", revision, 1)
        agent.freeze()
        started_s = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            waiting.result(timeout=5)
        assert time.monotonic() - started_s < 2


def test_a_frozen_agent_is_noticed_within_the_lease_and_an_acquire_ends_in_time(
    backend: Backend, address: str, agent: ServiceProcess
) -> None:
    other = connect(address)
    with Session.open(backend, LEASE_S) as session, Session.open(other) as rival_session:
        grant, told = Mutex(session, "m").acquire(), threading.Event()
        grant.on_lost(told.set)
        agent.freeze()
        frozen_s = time.monotonic()
        with pytest.raises(StoreError):
            Mutex(rival_session, "m").acquire(timeout_s=0.3)
        assert time.monotonic() - frozen_s < 1.0
        assert grant.lost.wait(5)
        assert time.monotonic() - frozen_s < LEASE_S + 0.2
        assert told.wait(1)
        with pytest.raises(GrantLostError):
            grant.check()
        agent.thaw()
        after = Mutex(rival_session, "m").acquire(timeout_s=10)
        assert after.token > grant.token
        assert not grant.held
    other.close()


def test_closing_a_backend_ends_the_waits_on_a_frozen_agent(
    address: str, agent: ServiceProcess
) -> None:
    backend = connect(address)
    revision = backend.list("d").revision
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(backend.wait_for_change, "d", revision, 60)
        agent.freeze()
        time.sleep(0.1)  # until the query is under way, which nothing announces
        backend.close()
        with pytest.raises(StoreUnavailableError, match="closed"):
            waiting.result(timeout=2)


def test_a_killed_holder_frees_its_lock_within_two_leases(
    backend: Backend, new_process: NewProcess
) -> None:
    holder, waiter = new_process(LEASE_S), new_process()
    first = holder.do("acquire", "m", 10)
    waiter.ask("acquire", "m", 20)
    wait_for_contenders(backend, 2)
    killed_s = time.monotonic()
    holder.signal(signal.SIGKILL)
    second = waiter.answer()
    assert second["token"] > first["token"]
    # The servers wait twice the lease after the last renewal; then the watch fires.
    assert second["at"] - killed_s < 2 * LEASE_S + 1


def test_a_holder_stopped_past_its_lease_knows_it_in_its_first_look(
    backend: Backend, new_process: NewProcess
) -> None:
    holder, waiter = new_process(LEASE_S), new_process()
    old = holder.do("acquire", "m", 10)
    holder.do("write", "x", "old")
    waiter.ask("acquire", "m", 20)
    wait_for_contenders(backend, 2)
    holder.signal(signal.SIGSTOP)
    new = waiter.answer()
    assert new["token"] > old["token"]
    waiter.do("write", "x", "new")
    holder.signal(signal.SIGCONT)
    seen = holder.do("look")
    assert (seen["held"], seen["lost"]) == (False, True)
    assert holder.do("write", "x", "late") == {"error": StaleTokenError.__name__}
    assert FencedStore(backend, "fenced").read("x") == (new["token"], b"new")


def test_a_session_that_an_operator_destroys_is_lost_within_a_second(
    backend: Backend, own_consul: ConsulServer
) -> None:
    with Session.open(backend, lease_s=30) as session:
        grant = Mutex(session, "m").acquire()
        operator_destroys(own_consul, session.id)
        destroyed_s = time.monotonic()
        assert grant.lost.wait(5)
        assert time.monotonic() - destroyed_s < 1
        assert backend.get(grant.guard().key) is None


def test_a_restarted_agent_takes_no_lock_from_a_holder_that_outlasts_it(
    backend: Backend, address: str, agent: ServiceProcess
) -> None:
    other = connect(address)
    with Session.open(backend, lease_s=30) as session, Session.open(other, lease_s=30) as rival:
        grant = Mutex(session, "m").acquire()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(Mutex(rival, "m").acquire, 60)
            wait_for_contenders(backend, 2)
            agent.restart()
            record = backend.get(grant.guard().key)
            assert record is not None
            assert record.created == grant.token
            assert grant.held
            assert not waiting.done()
            assert grant.release()
            assert waiting.result(timeout=20).token > grant.token
    other.close()


def test_tokens_grow_over_a_kill_of_the_agent_that_outlasts_the_lease(
    backend: Backend, address: str, agent: ServiceProcess
) -> None:
    session = Session.open(backend, LEASE_S)
    grant = Mutex(session, "m").acquire()
    agent.kill()
    assert grant.lost.wait(LEASE_S + 0.2)
    agent.start()
    agent.wait_until_ready()
    with Session.open(backend) as later:
        assert Mutex(later, "m").acquire(timeout_s=20).token > grant.token
    session.close()


def test_a_waiter_gives_up_in_time_while_the_agent_is_down(
    backend: Backend, address: str, agent: ServiceProcess
) -> None:
    other = connect(address)
    with Session.open(backend, lease_s=30) as session, Session.open(other, lease_s=30) as rival:
        Mutex(session, "m").acquire()
        with ThreadPoolExecutor(1) as pool:
            started_s = time.monotonic()
            waiting = pool.submit(Mutex(rival, "m").acquire, 1.5)
            wait_for_contenders(backend, 2)
            agent.kill()
            with pytest.raises(AcquireTimeoutError):
                waiting.result(timeout=10)
            assert time.monotonic() - started_s < 2.5
        agent.start()
        agent.wait_until_ready()
        # What the interrupted wait left behind is cleaned up by its session's keeper.
        wait_for_contenders(backend, 1)
    other.close()


def test_a_stranger_that_overwrites_a_guard_is_not_taken_for_the_holder(
    backend: Backend, own_consul: ConsulServer, address: str
) -> None:
    """Consul lets anybody write a held key: the record is still ours, and still guards."""
    with Session.open(backend) as session:
        grant = Mutex(session, "m").acquire()
        guard = grant.guard()
        connection = http.client.HTTPConnection(own_consul.host_port, timeout=5)
        prefix = address.partition(own_consul.host_port)[2]
        connection.request("PUT", f"/v1/kv{prefix}/{guard.key}", b"scribble")
        assert connection.getresponse().read() == b"true"
        connection.close()
        record = backend.get(guard.key)
        assert record is not None
        assert (record.created, record.session_id) == (grant.token, session.id)
        backend.transact([guard], [Create("guarded", b"")])
        assert grant.held


def test_a_forked_child_is_refused_at_once_and_the_parent_keeps_its_lock(
    new_process: NewProcess,
) -> None:
    process = new_process(LEASE_S)
    process.do("acquire", "m", 10)
    assert process.do("fork") == {"allowed": [], "held": True}
    time.sleep(2 * LEASE_S + 0.2)  # the parent's renewals outlive the child
    assert process.do("look") == {"held": True, "lost": False}


def test_a_store_set_back_to_an_old_copy_wakes_whoever_waits(
    backend: Backend, own_consul: ConsulServer
) -> None:
    """The index of what is there goes back with it."""
    backend.create("d/old", b"")
    connection = http.client.HTTPConnection(own_consul.host_port, timeout=10)
    connection.request("GET", "/v1/snapshot")
    copy = connection.getresponse().read()
    backend.create("d/new", b"")
    listing = backend.list("d")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(backend.wait_for_change, "d", listing.revision, 30)
        connection.request("PUT", "/v1/snapshot", copy)
        assert connection.getresponse().status == 200
        assert waiting.result(timeout=15)
    connection.close()
    assert [record.key for record in backend.list("d").records] == ["d/old"]
    later = backend.list("d").revision
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(backend.wait_for_change, "d", later, 30)
        time.sleep(0.1)  # until it waits
        backend.create("d/newer", b"")
        assert waiting.result(timeout=15)
