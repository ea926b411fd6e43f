"""The safety rules of a mutex (S1 to S9 of the design), on every store."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    AcquireCancelledError,
    AcquireTimeoutError,
    Backend,
    ConflictError,
    Create,
    FencedStore,
    Grant,
    GrantLostError,
    LockUsageError,
    Mutex,
    NotHeldError,
    Session,
    SessionLostError,
    StaleTokenError,
)
from services.counting import CountingListings
from services.waiting import wait_until

OpenSession = Callable[..., Session]
CONTENDERS = "locks/m/contenders"


@pytest.fixture
def mutex(open_session: OpenSession) -> Mutex:
    return Mutex(open_session(), "m")


@pytest.fixture
def rival(open_session: OpenSession) -> Mutex:
    return Mutex(open_session(), "m")


def contenders(backend: Backend) -> int:
    return len(backend.list(CONTENDERS).records)


def remove_holder(backend: Backend) -> None:
    """What an administrator does who breaks a lock."""
    backend.delete(backend.list(CONTENDERS).records[0].key)


@pytest.mark.replicated
def test_a_held_lock_is_refused_to_others_and_free_after_release(
    mutex: Mutex, rival: Mutex
) -> None:
    grant = mutex.acquire()
    assert grant.held
    assert 0 < grant.remaining_s <= 10
    assert rival.try_acquire() is None
    assert grant.release()
    assert not grant.held
    assert grant.remaining_s == 0
    other = rival.try_acquire()
    assert other is not None
    other.release()


@pytest.mark.replicated
def test_tokens_grow_over_holders_sessions_and_forced_release(
    mutex: Mutex, backend: Backend, open_session: OpenSession
) -> None:
    tokens = []
    for how in ("release", "break", "close", "release"):
        session = open_session()
        grant = Mutex(session, "m").acquire(timeout_s=10)
        tokens.append(grant.token)
        if how == "break":
            remove_holder(backend)
        elif how == "close":
            session.close()
        else:
            grant.release()
    assert tokens == sorted(set(tokens))


@pytest.mark.replicated
def test_the_lock_goes_to_whoever_came_first(
    mutex: Mutex, backend: Backend, open_session: OpenSession
) -> None:
    first, order = mutex.acquire(), []

    def take(number: int) -> None:
        with Mutex(open_session(), "m").hold(timeout_s=30) as grant:
            order.append((number, grant.token))

    with ThreadPoolExecutor(6) as pool:
        for number in range(6):
            pool.submit(take, number)
            wait_until(lambda expected=number + 2: contenders(backend) == expected)  # type: ignore[misc]
        first.release()
    assert [number for number, _ in order] == list(range(6))
    assert [token for _, token in order] == sorted(token for _, token in order)


def test_threads_of_one_session_exclude_each_other(mutex: Mutex) -> None:
    inside, most = [0], [0]

    def work(_: int) -> None:
        for _repeat in range(10):
            with mutex.hold(timeout_s=30):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert most == [1]


def test_a_thread_may_acquire_again_and_must_release_as_often(mutex: Mutex, rival: Mutex) -> None:
    outer = mutex.acquire()
    inner = mutex.acquire(timeout_s=0)
    third = mutex.try_acquire()
    assert third is not None
    assert outer.token == inner.token == third.token
    assert outer.release()
    assert not outer.release()
    assert inner.held
    assert third.release()
    assert rival.try_acquire() is None
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(mutex.try_acquire).result() is None
    assert inner.release()
    after = rival.try_acquire()
    assert after is not None
    assert after.token > inner.token


def test_loss_voids_all_levels(mutex: Mutex, backend: Backend) -> None:
    outer, inner = mutex.acquire(), mutex.acquire()
    remove_holder(backend)
    assert outer.lost.wait(5)
    assert not outer.held
    assert not inner.held
    again = mutex.acquire(timeout_s=5)
    assert again.token > outer.token
    assert not outer.release()
    assert not inner.release()
    assert again.held


def test_a_timeout_is_kept_and_leaves_nothing_behind(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    grant = mutex.acquire()
    started_s = time.monotonic()
    with pytest.raises(AcquireTimeoutError):
        rival.acquire(timeout_s=0.3)
    assert 0.25 < time.monotonic() - started_s < 1
    assert contenders(backend) == 1
    grant.release()
    assert contenders(backend) == 0


def test_a_timeout_is_kept_while_predecessors_come_and_go(
    mutex: Mutex, rival: Mutex, backend: Backend, open_session: OpenSession
) -> None:
    grant = mutex.acquire()
    churn, is_over = Mutex(open_session(), "m"), threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            with contextlib.suppress(AcquireTimeoutError):
                churn.acquire(timeout_s=0.02)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    started_s = time.monotonic()
    with pytest.raises(AcquireTimeoutError):
        rival.acquire(timeout_s=0.5)
    assert time.monotonic() - started_s < 1.5
    is_over.set()
    thread.join()
    grant.release()
    wait_until(lambda: contenders(backend) == 0)


def test_no_time_at_all_still_takes_a_free_lock(mutex: Mutex, rival: Mutex) -> None:
    with mutex.hold(timeout_s=0) as grant:
        assert grant.held
        started_s = time.monotonic()
        with pytest.raises(AcquireTimeoutError):
            rival.acquire(timeout_s=0)
        assert time.monotonic() - started_s < 0.5


def test_a_wait_can_be_called_off_and_leaves_nothing_behind(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    mutex.acquire()
    cancelled = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rival.acquire, None, cancelled)
        wait_until(lambda: contenders(backend) == 2)
        cancelled.set()
        with pytest.raises(AcquireCancelledError):
            waiting.result(timeout=5)
    assert contenders(backend) == 1


def test_an_exception_thrown_into_a_waiting_thread_leaves_nothing_behind(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    grant = mutex.acquire()
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            rival.acquire()
        except KeyboardInterrupt as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: contenders(backend) == 2)
    time.sleep(0.2)  # while a thread starts another, CPython may hand the exception to that one
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
    )
    thread.join(10)
    assert len(ended) == 1
    wait_until(lambda: contenders(backend) == 1)
    grant.release()
    assert rival.acquire(timeout_s=5).held


@pytest.mark.replicated
def test_a_broken_lock_is_known_within_a_second(mutex: Mutex, backend: Backend) -> None:
    grant, told = mutex.acquire(), threading.Event()
    grant.on_lost(told.set)
    remove_holder(backend)
    broken_s = time.monotonic()
    assert grant.lost.wait(5)
    assert time.monotonic() - broken_s < 1.0
    assert told.wait(5)
    assert not grant.held
    with pytest.raises(GrantLostError, match="removed"):
        grant.check()


def test_releasing_a_lost_lock_does_not_touch_the_next_holder(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    old = mutex.acquire()
    remove_holder(backend)
    new = rival.acquire(timeout_s=5)
    assert not old.release()
    assert not old.release()
    assert new.held
    new.check()
    assert contenders(backend) == 1


def test_a_session_that_ended_in_the_store_loses_the_lock(open_session: OpenSession) -> None:
    session = open_session(1.0)
    grant = Mutex(session, "m").acquire()
    session.backend_session.close(5)  # what a stolen session or an operator does
    stolen_s = time.monotonic()
    assert grant.lost.wait(5)
    assert time.monotonic() - stolen_s < 1.0
    with pytest.raises(GrantLostError):
        grant.check()
    assert session.lost.wait(5)
    with pytest.raises(SessionLostError):
        Mutex(session, "m").acquire(timeout_s=1)


def test_a_waiter_whose_session_ends_stops_waiting(mutex: Mutex, open_session: OpenSession) -> None:
    mutex.acquire()
    session = open_session(1.0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Mutex(session, "m").acquire)
        session.close()
        with pytest.raises(SessionLostError):
            waiting.result(timeout=5)


def test_closing_the_session_hands_the_lock_over(mutex: Mutex, open_session: OpenSession) -> None:
    session = open_session()
    grant = Mutex(session, "m").acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(mutex.acquire, 20)
        session.close()
        assert waiting.result(timeout=5).held
    assert not grant.held
    assert grant.lost.is_set()


def test_a_released_grant_says_so(mutex: Mutex) -> None:
    grant = mutex.acquire()
    told = threading.Event()
    grant.on_lost(told.set)
    grant.check()
    grant.release()
    assert grant.lost.is_set()
    with pytest.raises(NotHeldError):
        grant.check()
    assert not told.wait(0.05)


def test_a_block_that_did_not_notice_the_loss_raises_at_its_end(
    mutex: Mutex, backend: Backend
) -> None:
    def work(then: Callable[[], None]) -> None:
        with mutex.hold(timeout_s=5) as grant:
            remove_holder(backend)
            assert grant.lost.wait(5)
            then()

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(GrantLostError):
        work(lambda: None)
    with pytest.raises(ZeroDivisionError):
        work(fail)


@pytest.mark.replicated
def test_the_guard_refuses_a_write_after_the_lock_was_lost(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    old = mutex.acquire()
    backend.transact([old.guard()], [Create("writes/1", b"")])
    remove_holder(backend)
    with pytest.raises(ConflictError):
        backend.transact([old.guard()], [Create("writes/2", b"")])
    new = rival.acquire(timeout_s=5)
    backend.transact([new.guard()], [Create("writes/3", b"")])
    assert [r.key for r in backend.list("writes").records] == ["writes/1", "writes/3"]


def test_a_fenced_store_refuses_the_old_holder_after_the_new_one_wrote(
    mutex: Mutex, rival: Mutex, backend: Backend
) -> None:
    fenced = FencedStore(backend, "fenced")
    old = mutex.acquire()
    fenced.write("x", b"old", old.token)
    remove_holder(backend)
    new = rival.acquire(timeout_s=5)
    fenced.write("x", b"new", new.token)
    fenced.write("x", b"newer", new.token)
    with pytest.raises(StaleTokenError):
        fenced.write("x", b"old again", old.token)
    assert fenced.read("x") == (new.token, b"newer")


def test_a_release_wakes_only_the_next_in_line(
    mutex: Mutex, backend: Backend, connect_store: Callable[[], Backend]
) -> None:
    waiters, grants = 12, []
    counting = CountingListings(connect_store())
    first = mutex.acquire()
    with Session.open(counting) as session, ThreadPoolExecutor(waiters) as pool:  # type: ignore[arg-type]
        queue = Mutex(session, "m")

        def take() -> Grant:
            grant = queue.acquire(timeout_s=30)
            grants.append(grant)
            return grant

        futures = [pool.submit(take) for _ in range(waiters)]
        wait_until(lambda: contenders(backend) == waiters + 1 and counting.count >= waiters)
        time.sleep(0.1)  # whoever just queued up is about to wait; nothing announces that
        before = counting.count
        first.release()
        wait_until(lambda: len(grants) == 1)
        assert counting.count - before <= 2
        for number in range(waiters):
            wait_until(lambda expected=number + 1: len(grants) == expected)  # type: ignore[misc]
            grants[number].release()
        assert all(future.done() for future in futures)


@pytest.mark.parametrize(
    "name", ["", "/", "a//b", "a b", "a/contenders", "a/leader", "..", "x" * 201]
)
def test_a_name_that_makes_no_key_is_refused(open_session: OpenSession, name: str) -> None:
    with pytest.raises(LockUsageError):
        Mutex(open_session(), name)


def test_names_do_not_disturb_each_other(mutex: Mutex, open_session: OpenSession) -> None:
    with mutex.hold(), Mutex(open_session(), "m/inner").hold(timeout_s=5) as grant:
        assert grant.held
