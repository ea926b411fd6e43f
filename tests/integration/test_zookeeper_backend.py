"""What the ZooKeeper backend does beyond the contract: races, odd servers, nothing left behind."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import Create as CreateNode

from pliska.locks import (
    Absent,
    Backend,
    Change,
    Check,
    ConflictError,
    Create,
    Delete,
    Existing,
    LockUsageError,
    Mutex,
    Revision,
    Session,
    StoreUnavailableError,
    Unmodified,
    Update,
    connect,
)
from pliska.locks.backends import zookeeper_watch
from pliska.locks.backends.base import RECORD_BYTES_MAX
from pliska.locks.backends.zookeeper import ZookeeperBackend
from pliska.locks.backends.zookeeper_answer import Answer
from pliska.locks.backends.zookeeper_reads import READS_MAX
from pliska.locks.backends.zookeeper_requests import One, Reply
from pliska.locks.backends.zookeeper_writes import OPERATION_BYTES_MAX, TRANSACTION_BYTES_MAX
from services.proxy import CHANGES, Action, ZookeeperProxy
from services.zookeeper import SESSION_MS_MAX, SESSION_MS_MIN, ZookeeperServer


@pytest.fixture
def address(own_zookeeper: ZookeeperServer) -> str:
    return own_zookeeper.fresh_address()


@pytest.fixture
def connect_to() -> Iterator[Callable[[str], Backend]]:
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
def proxy(own_zookeeper: ZookeeperServer) -> Iterator[ZookeeperProxy]:
    with ZookeeperProxy(own_zookeeper.host_port) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("checks", "changes"),
    [
        ([Unmodified("d/a", Revision(0))], [Update("d/a", b"stale")]),
        ([Existing("d/a", Revision(0))], [Update("d/a", b"stale")]),
        ([Unmodified("d/a", Revision(0))], [Delete("d/a")]),
        ([Existing("d/a", Revision(0))], [Create("d/b", b"stale")]),
    ],
)
def test_a_record_made_anew_just_before_the_write_does_not_pass_for_the_old_one(
    backend: Backend,
    proxy: ZookeeperProxy,
    own_zookeeper: ZookeeperServer,
    connect_to: Callable[[str], Backend],
    checks: list[Check],
    changes: list[Change],
) -> None:
    """Both have version 0, which is all that ZooKeeper itself compares."""
    record = backend.create("d/a", b"old")
    client = connect_to(backend.address.replace(own_zookeeper.host_port, proxy.host_port))
    is_due = threading.Event()
    is_due.set()

    def decide(kind: int) -> Action:
        if kind in CHANGES and is_due.is_set():
            is_due.clear()
            backend.delete("d/a")
            backend.create("d/a", b"new")
        return Action.PASS

    proxy.decide = decide
    (check,) = checks
    seen = (
        Unmodified("d/a", record.modified)
        if isinstance(check, Unmodified)
        else Existing("d/a", record.created)
    )
    with pytest.raises(ConflictError):
        client.transact([seen], changes)
    assert not is_due.is_set()
    after = backend.get("d/a")
    assert after is not None
    assert after.value == b"new"
    assert backend.get("d/b") is None


def test_a_change_beside_it_just_before_the_write_does_not_refuse_it(
    backend: Backend,
    proxy: ZookeeperProxy,
    own_zookeeper: ZookeeperServer,
    connect_to: Callable[[str], Backend],
) -> None:
    record = backend.create("d/a", b"old")
    backend.create("d/beside", b"")
    client = connect_to(backend.address.replace(own_zookeeper.host_port, proxy.host_port))
    left = ["d/beside"]

    def decide(kind: int) -> Action:
        if kind in CHANGES and left:
            backend.delete(left.pop())
        return Action.PASS

    proxy.decide = decide
    assert client.update("d/a", b"new", record.modified).value == b"new"
    assert not left


def test_a_directory_that_went_before_the_write_is_made_again(
    backend: Backend, own_zookeeper: ZookeeperServer
) -> None:
    backend.create("d/e/a", b"")
    backend.delete("d/e/a")
    zookeeper = KazooClient(own_zookeeper.host_port)
    zookeeper.start()
    root = "/" + backend.address.split("/", 3)[3]
    zookeeper.delete(f"{root}/d", recursive=True)  # as the server does with empty containers
    zookeeper.stop()
    zookeeper.close()
    assert backend.create("d/e/a", b"again").value == b"again"
    assert backend.transact([Absent("x/y")], [Create("d/e/b", b"")])


def test_a_request_without_a_connection_fails_at_once_and_is_never_sent(
    backend: ZookeeperBackend,
) -> None:
    link, layout = backend._link, backend._layout
    answer = Answer(One(CreateNode(layout.path("never"), b"", layout.acl, 0)))
    link._connection.lose(ConnectionLoss())
    link.submit(answer)
    with pytest.raises(ConnectionLoss):
        answer.read()
    backend.create("later", b"")  # connected again
    assert backend.get("never") is None
    assert not answer.was_sent


def test_the_granted_lease_is_known(backend: Backend) -> None:
    for asked_s, granted_s in (
        (0.01, SESSION_MS_MIN / 1000),
        (3.0, 3.0),
        (1e3, SESSION_MS_MAX / 1000),
    ):
        session = backend.open_session(asked_s)
        assert session.lease_s == pytest.approx(granted_s)
        session.close(5)


def test_a_record_below_a_record_is_kept_and_holds_its_parent(backend: Backend) -> None:
    parent = backend.create("jobs/a", b"definition")
    child = backend.create("jobs/a/commit", b"1")
    assert backend.get("jobs/a") == parent
    assert backend.list("jobs").records == (parent,)
    assert backend.list("jobs/a").records == (child,)
    with pytest.raises(LockUsageError, match="delete them first"):
        backend.delete("jobs/a")
    with pytest.raises(LockUsageError, match="created before them"):
        backend.create("jobs", b"")
    assert not backend.delete("jobs/none")
    with pytest.raises(ConflictError):
        backend.transact([], [Update("jobs", b"")])
    session = backend.open_session(5)
    backend.create("jobs/a/live", b"", session)
    with pytest.raises(LockUsageError, match="belongs to a session"):
        backend.create("jobs/a/live/below", b"")
    session.close(5)


def test_one_transaction_creates_for_one_session_only(backend: Backend) -> None:
    one, two = backend.open_session(5), backend.open_session(5)
    with pytest.raises(LockUsageError, match="one session"):
        backend.transact([], [Create("a", b"", one.id), Create("b", b"", two.id)])
    one.close(5)
    two.close(5)


def test_a_transaction_at_the_size_limit_is_applied_and_beyond_it_refused(
    backend: Backend,
) -> None:
    rest = TRANSACTION_BYTES_MAX - 3 * RECORD_BYTES_MAX - 4 * OPERATION_BYTES_MAX
    sizes = [RECORD_BYTES_MAX] * 3 + [rest]
    changes = [Create(f"d/{i}", bytes(size)) for i, size in enumerate(sizes)]
    backend.transact([], changes)
    assert [len(r.value) for r in backend.list("d").records] == sizes
    with pytest.raises(LockUsageError, match="too large for ZooKeeper"):
        backend.transact(
            [],
            [
                Update("d/3", bytes(rest + 1)),
                *[Update(f"d/{i}", bytes(sizes[i])) for i in range(3)],
            ],
        )
    assert backend.get("d/3") is not None


def test_a_listing_longer_than_one_request_is_whole(backend: Backend) -> None:
    session = backend.open_session(10)
    expected = []
    for number in range(READS_MAX + 5):
        owner = session.id if number % 2 else None
        backend.transact([], [Create(f"d/{number}", b"%d" % number, owner)])
        expected.append((f"d/{number}", b"%d" % number, owner))
    listing = backend.list("d")
    assert [(r.key, r.value, r.session_id) for r in listing.records] == expected
    session.close(5)


def test_a_queue_read_from_a_server_that_is_behind_is_read_again(
    backend: ZookeeperBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = backend.open_session(10)
    record = backend.create("d/a", b"", session)
    behind = Reply(record.created - 1, (["another"],))
    monkeypatch.setattr(backend._watcher, "wait_and_read", lambda *_: behind)
    listing = backend.wait_and_list("d/a", record.created, "d", 1.0)
    assert listing is not None
    assert listing.records == (record,)
    session.close(5)


@pytest.mark.parametrize("path", ["d", "d/mine"])
def test_a_look_at_what_is_watched_already_leaves_the_watch_in_place(
    backend: Backend, connect_to: Callable[[str], Backend], path: str
) -> None:
    """To this server a connection has one kind of watch for a path."""
    writer = connect_to(backend.address)
    session = writer.open_session(30)
    writer.create("d/mine", b"", session)
    first = backend.list("d").revision
    assert not backend.wait_for_change(path, first, 0.0)  # watches all of it from now on
    writer.transact([], [Update("d/mine", b"0")])
    assert backend.wait_and_list(path, first, "d", 20) is not None  # looks: it has happened
    with ThreadPoolExecutor(1) as pool:
        for number in range(3):
            before = backend.list("d")
            waiting = pool.submit(backend.wait_and_list, path, before.revision, "d", 20)
            time.sleep(0.05)  # until it sleeps
            started_s = time.monotonic()
            writer.transact([], [Update("d/mine", b"%d" % (number + 1))])
            assert waiting.result(20) is not None
            assert time.monotonic() - started_s < 10
    session.close(5)


def test_watches_that_nobody_uses_are_taken_down(
    backend: Backend, own_zookeeper: ZookeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_watch, "IDLE_S", 0.0)
    for number in range(100):
        revision = backend.list(f"d/{number}").revision
        assert not backend.wait_for_change(f"d/{number}", revision, 0.0)
    backend.get("d")  # whatever was sent before has been handled
    watches = own_zookeeper.ask("wchs")
    assert "Total watches:" in watches
    assert int(watches.rpartition(":")[2]) <= 4  # a watch counts once for data, once for children
    assert len(backend._watcher._watches) <= 2  # type: ignore[attr-defined]


def test_nothing_of_a_client_stays_behind(address: str, own_zookeeper: ZookeeperServer) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.is_alive()}

    def connections() -> int:
        return own_zookeeper.ask("cons").count("sid=")

    before, connections_before = threads(), connections()
    for _ in range(3):
        backend = connect(address)
        with Session.open(backend, 5.0) as session, Mutex(session, "m").hold(timeout_s=5):
            backend.open_session(5.0)  # never closed: it runs out
        backend.close()
    deadline_s = time.monotonic() + 10
    while threads() - before or connections() > connections_before:
        assert time.monotonic() < deadline_s, threads() - before
        time.sleep(0.05)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x04abcd" * 9, b""]
)
def test_a_server_that_is_none_of_zookeepers_is_an_error_in_time(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_over = threading.Event()

        def serve() -> None:
            while not is_over.is_set():
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host_port = f"127.0.0.1:{listener.getsockname()[1]}"
        started_s = time.monotonic()
        with pytest.raises(StoreUnavailableError, match=host_port):
            ZookeeperBackend(f"zookeeper://{host_port}/x", timeout_s=0.5)
        assert time.monotonic() - started_s < 3
        is_over.set()
        socket.create_connection(listener.getsockname()).close()
        thread.join(5)


def test_no_server_at_all_is_an_error_that_names_it_and_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host_port = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(StoreUnavailableError, match=f"{host_port}.*refused"):
        ZookeeperBackend(f"zookeeper://{host_port}/x", timeout_s=0.5)
