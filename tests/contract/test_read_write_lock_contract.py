"""The safety rules of a read/write lock, on every store."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    AcquireCancelledError,
    AcquireTimeoutError,
    Backend,
    Grant,
    GrantLostError,
    LockUsageError,
    Mutex,
    NotHeldError,
    ReadWriteLock,
    Session,
    UpgradeRefusedError,
)
from services.counting import CountingListings
from services.waiting import wait_until

OpenSession = Callable[..., Session]
Another = Callable[[], ReadWriteLock]
CONTENDERS = "locks/rw/contenders"


@pytest.fixture
def another(open_session: OpenSession) -> Another:
    """Makes one more user of the lock, with a session of its own."""
    return lambda: ReadWriteLock(open_session(), "rw")


@pytest.fixture
def lock(another: Another) -> ReadWriteLock:
    return another()


def wait_for_contenders(backend: Backend, count: int) -> None:
    wait_until(lambda: len(backend.list(CONTENDERS).records) == count)


def test_readers_share_and_a_writer_is_alone(lock: ReadWriteLock, another: Another) -> None:
    first, second = lock.read.acquire(), another().read.acquire(timeout_s=10)
    assert first.held
    assert second.held
    assert second.token > first.token
    writer = another()
    assert writer.write.try_acquire() is None
    first.release()
    assert writer.write.try_acquire() is None
    second.release()
    grant = writer.write.try_acquire()
    assert grant is not None
    assert grant.token > second.token
    assert another().read.try_acquire() is None
    assert another().write.try_acquire() is None


def test_a_reader_does_not_overtake_a_writer_who_waits(
    lock: ReadWriteLock, another: Another, backend: Backend
) -> None:
    reading, order = lock.read.acquire(), []

    def take(side: Callable[[], Grant], name: str) -> None:
        with side():
            order.append(name)

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(take, another().write.acquire, "writer")]
        wait_for_contenders(backend, 2)
        late = another()
        assert late.read.try_acquire() is None
        futures.append(pool.submit(take, late.read.acquire, "late reader"))
        wait_for_contenders(backend, 3)
        assert order == []
        reading.release()
        for future in futures:
            future.result(timeout=20)
    assert order == ["writer", "late reader"]


def test_a_writer_is_not_starved_by_readers_who_keep_coming(another: Another) -> None:
    is_over, writer = threading.Event(), another()

    def read_on(lock: ReadWriteLock) -> None:
        while not is_over.is_set():
            with lock.read.hold(timeout_s=30):
                time.sleep(0.002)

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(read_on, another()) for _ in range(3)]
        for _ in range(3):
            with writer.write.hold(timeout_s=20) as grant:
                assert grant.held
        is_over.set()
        for future in futures:
            future.result(timeout=20)


def test_all_readers_between_two_writers_come_in_together(
    lock: ReadWriteLock, another: Another, backend: Backend
) -> None:
    writing, readers = lock.write.acquire(), 4
    together = threading.Barrier(readers)

    def read(lock: ReadWriteLock) -> None:
        with lock.read.hold(timeout_s=30):
            together.wait(20)

    with ThreadPoolExecutor(readers) as pool:
        futures = [pool.submit(read, another()) for _ in range(readers)]
        wait_for_contenders(backend, 1 + readers)
        writing.release()
        for future in futures:
            future.result(timeout=20)


def test_nobody_is_inside_with_a_writer(another: Another) -> None:
    inside: list[str] = []
    wrong: list[list[str]] = []

    def work(number: int) -> None:
        lock = another()
        for turn in range(12):
            kind = "write" if (turn + number) % 3 == 0 else "read"
            with (lock.write if kind == "write" else lock.read).hold(timeout_s=60):
                inside.append(kind)
                now = list(inside)
                if "write" in now and len(now) > 1:
                    wrong.append(now)
                inside.remove(kind)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, number) for number in range(4)]:
            future.result(timeout=60)
    assert wrong == []


def test_an_upgrade_is_refused_at_once_and_leaves_the_reading(
    lock: ReadWriteLock, another: Another
) -> None:
    with lock.read.hold() as grant:
        for attempt in (lock.write.acquire, lock.write.try_acquire):
            with pytest.raises(UpgradeRefusedError, match="held for reading"):
                attempt()
        assert grant.held
        assert another().read.acquire(timeout_s=10).release()
    assert lock.write.acquire(timeout_s=10).held


def test_the_read_side_is_reentrant_even_while_a_writer_waits(
    lock: ReadWriteLock, another: Another, backend: Backend
) -> None:
    outer = lock.read.acquire()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(another().write.acquire, 30)
        wait_for_contenders(backend, 2)
        inner = lock.read.acquire(timeout_s=1)
        assert inner.token == outer.token
        outer.release()
        assert not writing.done()
        inner.release()
        assert writing.result(timeout=20).held


def test_who_writes_may_read_and_write_again(lock: ReadWriteLock, another: Another) -> None:
    writing = lock.write.acquire()
    reading, again = lock.read.acquire(timeout_s=1), lock.write.acquire(timeout_s=1)
    assert writing.token == reading.token == again.token
    other = another()
    for grant in (writing, reading, again):
        assert other.read.try_acquire() is None
        assert grant.release()
    assert other.read.acquire(timeout_s=10).held


def test_after_a_downgrade_waiting_readers_come_in_and_no_waiting_writer(
    lock: ReadWriteLock, another: Another, backend: Backend
) -> None:
    grant = lock.write.acquire()
    token = grant.token
    with ThreadPoolExecutor(3) as pool:
        reader = pool.submit(another().read.acquire, 30)
        wait_for_contenders(backend, 2)
        writer = pool.submit(another().write.acquire, 30)
        wait_for_contenders(backend, 3)
        behind = pool.submit(another().read.acquire, 30)
        wait_for_contenders(backend, 4)
        lock.write.downgrade()
        reading = reader.result(timeout=20)
        assert grant.held
        assert grant.token == token
        assert not writer.done()
        assert not behind.done()
        reading.release()
        assert another().write.try_acquire() is None
        assert not writer.done()
        grant.release()
        writer.result(timeout=20).release()
        assert behind.result(timeout=20).held


def test_a_downgraded_writer_only_reads(lock: ReadWriteLock) -> None:
    grant = lock.write.acquire()
    lock.write.downgrade()
    lock.write.downgrade()
    grant.check()
    with pytest.raises(UpgradeRefusedError):
        lock.write.acquire(timeout_s=1)
    again = lock.read.acquire(timeout_s=1)
    assert again.token == grant.token


def test_a_downgrade_below_other_levels_or_of_nothing_is_refused(lock: ReadWriteLock) -> None:
    with pytest.raises(NotHeldError):
        lock.write.downgrade()
    with lock.write.hold():
        inner = lock.write.acquire()
        with pytest.raises(LockUsageError, match="2 times"):
            lock.write.downgrade()
        inner.release()
        lock.write.downgrade()


def test_a_downgrade_of_what_was_broken_says_so(lock: ReadWriteLock, backend: Backend) -> None:
    grant = lock.write.acquire()
    backend.delete(backend.list(CONTENDERS).records[0].key)
    with pytest.raises((GrantLostError, NotHeldError)):
        lock.write.downgrade()
    assert grant.lost.wait(5)
    assert not grant.held


def test_a_mutex_of_the_same_name_is_a_writer(
    lock: ReadWriteLock, open_session: OpenSession
) -> None:
    mutex = Mutex(open_session(), "rw")
    with lock.read.hold():
        assert mutex.try_acquire() is None
    with mutex.hold(timeout_s=10):
        assert lock.read.try_acquire() is None
        assert lock.write.try_acquire() is None


def test_a_record_that_nobody_can_read_counts_as_a_writer(
    lock: ReadWriteLock, backend: Backend
) -> None:
    for value in (b"", b"\xff", b"[]", b"[" * 9999, b'{"is_shared": 1}', b'{"is_shared": "yes"}'):
        backend.create(f"{CONTENDERS}/strange", value)
        assert lock.read.try_acquire() is None
        backend.delete(f"{CONTENDERS}/strange")
    assert lock.read.try_acquire() is not None


def test_a_wait_on_either_side_ends_in_time_or_when_called_off_and_leaves_nothing(
    lock: ReadWriteLock, another: Another, backend: Backend
) -> None:
    lock.write.acquire()
    for side in (another().read, another().write):
        with pytest.raises(AcquireTimeoutError):
            side.acquire(timeout_s=0.1)
        cancelled = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(side.acquire, None, cancelled)
            wait_for_contenders(backend, 2)
            cancelled.set()
            with pytest.raises(AcquireCancelledError):
                waiting.result(timeout=10)
    wait_for_contenders(backend, 1)


def test_a_reader_whose_session_ends_lets_the_writer_in(
    another: Another, open_session: OpenSession, backend: Backend
) -> None:
    session = open_session()
    reading = ReadWriteLock(session, "rw").read.acquire()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(another().write.acquire, 60)
        wait_for_contenders(backend, 2)
        session.close()
        assert writing.result(timeout=20).held
    assert not reading.held


def test_a_reader_who_leaves_wakes_only_the_writer_behind_it(
    lock: ReadWriteLock, another: Another, backend: Backend, connect_store: Callable[[], Backend]
) -> None:
    counting = CountingListings(connect_store())
    first, second = lock.read.acquire(), another().read.acquire()
    with ThreadPoolExecutor(8) as pool, Session.open(counting) as session:  # type: ignore[arg-type]
        writer = pool.submit(another().write.acquire, 60)
        wait_for_contenders(backend, 3)
        queue = ReadWriteLock(session, "rw")
        readers = []
        for count in range(7):
            readers.append(pool.submit(queue.read.acquire, 60))
            wait_for_contenders(backend, 4 + count)
        wait_until(lambda: counting.count >= 7)
        time.sleep(0.2)  # whoever just queued up is about to wait; nothing announces that
        before = counting.count
        second.release()
        time.sleep(0.2)
        first.release()
        assert writer.result(timeout=20).held
        assert counting.count == before
        writer.result().release()
        assert all(reader.result(timeout=20).held for reader in readers)
