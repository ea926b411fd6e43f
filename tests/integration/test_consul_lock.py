"""The lock that we share with Consul's own clients, against the real `consul lock`."""

import contextlib
import http.client
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pliska.locks import (
    AcquireCancelledError,
    AcquireTimeoutError,
    Backend,
    ConflictError,
    ConsulLock,
    Create,
    GrantLostError,
    LockUsageError,
    Session,
    connect,
)
from services.consul import ConsulServer

KEY = "app/.lock"
"""What `consul lock …/app` locks."""

OpenLock = Callable[..., ConsulLock]


@pytest.fixture
def address(consul: ConsulServer) -> str:
    return consul.fresh_address()


@pytest.fixture
def open_lock(address: str) -> Iterator[OpenLock]:
    """Makes the lock of another client."""
    with contextlib.ExitStack() as stack:

        def open_one(lease_s: float = 10.0) -> ConsulLock:
            backend = connect(address)
            stack.callback(backend.close)
            return ConsulLock(stack.enter_context(Session.open(backend, lease_s)), KEY)

        yield open_one


@pytest.fixture
def run_consul_lock(
    address: str, consul: ConsulServer, consul_binary: Path
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Runs a command under `consul lock`; its output says when it holds."""
    prefix = address.removeprefix(f"consul://{consul.host_port}/")
    processes: list[subprocess.Popen[str]] = []

    def run(*options: str, command: str = "echo held; read -r line") -> subprocess.Popen[str]:
        line = [
            str(consul_binary),
            "lock",
            "-pass-stdin",
            f"-http-addr={consul.host_port}",
            *options,
        ]
        processes.append(
            subprocess.Popen(
                [*line, f"{prefix}/app", command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def pair(consul: ConsulServer, address: str) -> dict[str, Any] | None:
    """The key as Consul has it."""
    connection = http.client.HTTPConnection(consul.host_port, timeout=5)
    connection.request("GET", f"/v1/kv{address.partition(consul.host_port)[2]}/{KEY}?consistent")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return dict(json.loads(body)[0]) if answer.status == 200 else None


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_consul_lock_waits_while_we_hold_and_we_wait_while_it_holds(
    open_lock: OpenLock,
    run_consul_lock: Callable[..., subprocess.Popen[str]],
    consul: ConsulServer,
    address: str,
) -> None:
    lock = open_lock()
    ours = lock.acquire(timeout_s=5)
    refused = run_consul_lock("-try=500ms")
    assert refused.wait(10) != 0
    theirs = run_consul_lock()
    time.sleep(0.3)  # it waits; nothing announces that
    assert theirs.poll() is None
    ours.release()
    assert first_line(theirs) == "held"
    held = pair(consul, address)
    assert held is not None
    assert held["ModifyIndex"] > ours.token
    assert lock.try_acquire() is None
    with pytest.raises(AcquireTimeoutError):
        lock.acquire(timeout_s=0.3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire, 20)
        time.sleep(0.3)  # as above
        assert not waiting.done()
        assert theirs.stdin is not None
        theirs.stdin.write("\n")
        theirs.stdin.flush()
        after = waiting.result(timeout=10)
    assert after.held
    assert after.token > held["ModifyIndex"]
    assert theirs.wait(10) == 0


def test_a_key_that_others_released_and_left_behind_is_free(
    open_lock: OpenLock, consul: ConsulServer, address: str, backend: Backend
) -> None:
    """Consul's Go package does so."""
    connection = http.client.HTTPConnection(consul.host_port, timeout=5)

    def put(path: str, body: str = "") -> Any:
        connection.request("PUT", path, body)
        return json.loads(connection.getresponse().read())

    session_id = put("/v1/session/create")["ID"]
    path = f"/v1/kv{address.partition(consul.host_port)[2]}/{KEY}?flags={0x2DDCCBC058A50C18}"
    assert put(f"{path}&acquire={session_id}")
    assert open_lock().try_acquire() is None
    assert put(f"{path}&release={session_id}")
    left = pair(consul, address)
    assert left is not None
    grant = open_lock().try_acquire()
    assert grant is not None
    assert grant.token > left["ModifyIndex"] > left["CreateIndex"]
    connection.close()


def test_we_are_served_in_order_and_tokens_grow(open_lock: OpenLock) -> None:
    tokens: list[int] = []
    first = open_lock().acquire(timeout_s=5)

    def take(lock: ConsulLock) -> None:
        with lock.hold(timeout_s=30) as grant:
            tokens.append(grant.token)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(take, open_lock())
        first.release()
    assert len(tokens) == 4
    assert tokens == sorted({first.token, *tokens} - {first.token})


def test_what_is_no_lock_is_not_overwritten(open_lock: OpenLock, backend: Backend) -> None:
    record = backend.create(KEY, b"precious")
    with pytest.raises(LockUsageError, match="no lock"):
        open_lock().acquire(timeout_s=5)
    assert backend.get(KEY) == record
    assert backend.list("locks/app/.lock/contenders").records == ()


def test_whoever_loses_the_key_knows_within_a_second_and_its_guard_fails(
    open_lock: OpenLock, backend: Backend
) -> None:
    grant, told = open_lock().acquire(timeout_s=5), threading.Event()
    grant.on_lost(told.set)
    backend.transact([grant.guard()], [Create("writes/1", b"")])
    backend.delete(KEY)
    taken_s = time.monotonic()
    with pytest.raises(ConflictError):
        backend.transact([grant.guard()], [Create("writes/2", b"")])
    assert grant.lost.wait(5)
    assert time.monotonic() - taken_s < 1
    assert told.wait(5)
    with pytest.raises(GrantLostError):
        grant.check()
    assert not grant.release()
    assert open_lock().acquire(timeout_s=5).token > grant.token


def test_releasing_a_lost_key_does_not_take_it_from_others(
    open_lock: OpenLock,
    backend: Backend,
    run_consul_lock: Callable[..., subprocess.Popen[str]],
    consul: ConsulServer,
    address: str,
) -> None:
    grant = open_lock().acquire(timeout_s=5)
    backend.delete(KEY)
    theirs = run_consul_lock()
    assert first_line(theirs) == "held"
    held = pair(consul, address)
    grant.release()
    assert pair(consul, address) == held


def test_a_wait_for_others_can_be_called_off_and_leaves_nothing_behind(
    open_lock: OpenLock, run_consul_lock: Callable[..., subprocess.Popen[str]], backend: Backend
) -> None:
    theirs = run_consul_lock()
    assert first_line(theirs) == "held"
    cancelled = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(open_lock().acquire, None, cancelled)
        while not backend.list("locks/app/.lock/contenders").records:
            time.sleep(0.01)
        cancelled.set()
        with pytest.raises(AcquireCancelledError):
            waiting.result(timeout=5)
    assert backend.list("locks/app/.lock/contenders").records == ()


def test_a_session_that_ends_frees_the_key_after_the_lock_delay(
    open_lock: OpenLock, backend: Backend
) -> None:
    lock = open_lock(lease_s=1.0)
    grant = lock.acquire(timeout_s=5)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(open_lock().acquire, 20)
        started_s = time.monotonic()
        lock._session.close()
        after = waiting.result(timeout=20)
    # A third of the lease and a second: the time in which any holder notices.
    assert 1.2 < time.monotonic() - started_s < 4
    assert after.token > grant.token


def test_another_store_has_no_such_lock() -> None:
    backend = connect("memory:")
    with Session.open(backend) as session, pytest.raises(LockUsageError, match="no Consul"):
        ConsulLock(session, KEY)
