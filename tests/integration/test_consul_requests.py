"""What a lock costs in requests to Consul, and in connections."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import Backend, Create, Existing, Grant, Mutex, Session, Update, connect
from pliska.locks.backends.consul import ConsulBackend
from pliska.locks.backends.consul_http import Answer, Connections
from services.consul import ConsulServer


@pytest.fixture
def backend(consul: ConsulServer) -> Iterator[Backend]:
    backend = connect(consul.fresh_address())
    yield backend
    backend.close()


@pytest.fixture
def requests_of(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], object]], list[str]]:
    """The requests that this thread makes while it does something; keepers have their own."""
    assert isinstance(backend, ConsulBackend)
    made: list[tuple[int, str]] = []
    send = Connections.request

    def counted(
        self: Connections, method: str, target: str, body: bytes, timeout_s: float
    ) -> Answer:
        made.append((threading.get_ident(), f"{method} {target}"))
        return send(self, method, target, body, timeout_s)

    monkeypatch.setattr(Connections, "request", counted)

    def during(action: Callable[[], object]) -> list[str]:
        made.clear()
        action()
        return [target for thread, target in made if thread == threading.get_ident()]

    return during


def test_an_uncontended_acquire_takes_two_requests_and_a_release_one(
    backend: Backend, requests_of: Callable[[Callable[[], object]], list[str]]
) -> None:
    with Session.open(backend) as session:
        mutex = Mutex(session, "m")
        grants: list[Grant] = []
        for _ in range(3):
            assert len(requests_of(lambda: grants.append(mutex.acquire()))) == 2
            assert len(requests_of(lambda: grants.pop().release())) == 1
        # A session is begun once and reused: the only requests about it are its renewals.
        assert not any("session" in each for each in requests_of(mutex.acquire))


def test_single_record_calls_take_one_request(
    backend: Backend, requests_of: Callable[[Callable[[], object]], list[str]]
) -> None:
    for call in (
        lambda: backend.create("a", b""),
        lambda: backend.get("a"),
        lambda: backend.list("a"),
        lambda: backend.directories("a"),
        lambda: backend.delete("a"),
        lambda: backend.delete("a"),
    ):
        assert len(requests_of(call)) == 1


def test_a_guarded_write_takes_one_request_until_the_guard_was_rewritten(
    backend: Backend, requests_of: Callable[[Callable[[], object]], list[str]]
) -> None:
    guard = backend.create("guard", b"1")
    check = Existing(guard.key, guard.created)
    assert len(requests_of(lambda: backend.transact([check], [Create("w/1", b"")]))) == 1
    backend.transact([], [Update("guard", b"2")])
    assert len(requests_of(lambda: backend.transact([check], [Create("w/2", b"")]))) == 3


def test_waiting_threads_do_not_starve_calls(backend: Backend) -> None:
    """As they did on py-consul's ten connections for all."""
    revision, waiters = backend.list("d").revision, 30
    with ThreadPoolExecutor(waiters) as pool:
        waits = [
            pool.submit(backend.wait_for_change, f"d/{i}", revision, 20) for i in range(waiters)
        ]
        for number in range(20):
            backend.create(f"e/{number}", b"", timeout_s=2)
        for number in range(waiters):
            backend.create(f"d/{number}", b"", timeout_s=2)
        assert all(wait.result(timeout=10) for wait in waits)
