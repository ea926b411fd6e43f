"""Three Consul servers: clients on each of them, and one of them, the leader too, killed."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from pliska.locks import (
    Backend,
    ConflictError,
    Create,
    Election,
    Leadership,
    Mutex,
    OutcomeUnknownError,
    Session,
    StoreUnavailableError,
    connect,
    current_leader,
)
from services.consul import ConsulServer

Result = TypeVar("Result")


@pytest.fixture
def backends(consul_servers: Sequence[ConsulServer]) -> Iterator[list[Backend]]:
    """A client on each server, all in one store."""
    first = consul_servers[0].fresh_address()
    addresses = [
        first.replace(consul_servers[0].host_port, server.host_port) for server in consul_servers
    ]
    backends = [connect(address) for address in addresses]
    yield backends
    for backend in backends:
        backend.close()


def leading(servers: Sequence[ConsulServer]) -> int:
    """Which of the servers leads, by its own word."""
    for number, server in enumerate(servers):
        assert server.process is not None
        config = server.process.log.with_name("consul.json").read_text()
        port = server.leader().rpartition(":")[2]
        if port and f'"server": {port}' in config:
            return number
    raise AssertionError("no server leads")


def retried(action: Callable[[], Result]) -> Result:
    """What a caller does while the servers elect a leader."""
    deadline_s = time.monotonic() + 30
    while True:
        try:
            return action()
        except (StoreUnavailableError, OutcomeUnknownError):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)


def guarded_write(backend: Backend, leadership: Leadership) -> None:
    if backend.get("written") is None:
        backend.transact([leadership.guard()], [Create("written", b"")])


def test_each_server_shows_at_once_what_another_acknowledged(backends: list[Backend]) -> None:
    record = backends[0].create("counter", b"0")
    for number in range(1, 31):
        record = backends[number % 3].update("counter", b"%d" % number, record.modified)
        assert backends[(number + 1) % 3].get("counter") == record
        assert backends[(number + 2) % 3].list("d").revision >= record.modified


def test_compare_and_set_has_one_winner_over_all_servers(backends: list[Backend]) -> None:
    backends[0].create("counter", b"0")

    def count(client: Backend) -> None:
        done = 0
        while done < 10:
            record = client.get("counter")
            assert record is not None
            try:
                client.update("counter", b"%d" % (int(record.value) + 1), record.modified)
            except ConflictError:
                continue
            done += 1

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(count, backends))
    final = backends[1].get("counter")
    assert final is not None
    assert final.value == b"30"


def test_a_lock_goes_from_server_to_server_in_order(backends: list[Backend]) -> None:
    sessions = [Session.open(backend) for backend in backends]
    tokens: list[int] = []

    def take(session: Session) -> None:
        for _ in range(4):
            with Mutex(session, "m").hold(timeout_s=30) as grant:
                tokens.append(grant.token)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(take, sessions))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 12
    for session in sessions:
        session.close()


def test_the_loss_of_the_leading_server_costs_no_lock_and_no_epoch(
    backends: list[Backend], consul_servers: Sequence[ConsulServer]
) -> None:
    dead = leading(consul_servers)
    holder, waiter = (backend for i, backend in enumerate(backends) if i != dead)
    with Session.open(holder, lease_s=30) as session, Session.open(waiter, lease_s=30) as standby:
        leadership = Election(session, "job", "c1").campaign(timeout_s=10)
        with ThreadPoolExecutor(1) as pool:
            next_one = pool.submit(Election(standby, "job", "c2").campaign, 60)
            while len(holder.list("elections/job/contenders").records) < 2:
                time.sleep(0.01)
            process = consul_servers[dead].process
            assert process is not None
            process.kill()
            seen = retried(lambda: current_leader(waiter, "job"))
            assert seen is not None
            assert leadership.held
            retried(lambda: guarded_write(holder, leadership))
            assert not next_one.done()
            assert leadership.resign()
            assert next_one.result(timeout=30).epoch > leadership.epoch
            process.start()
            process.wait_until_ready()
