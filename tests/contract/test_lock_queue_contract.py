"""Who holds a lock and who waits, seen from outside, and forced release, on every store."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import (
    AcquireTimeoutError,
    Backend,
    FencingToken,
    GrantLostError,
    Mutex,
    ReadWriteLock,
    Session,
    break_lock,
    lock_names,
    lock_queue,
)

OpenSession = Callable[..., Session]


def wait_for_queue(backend: Backend, name: str, count: int) -> None:
    deadline_s = time.monotonic() + 20
    while len(lock_queue(backend, name)) != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_locks_are_listed_while_somebody_holds_them(
    open_session: OpenSession, backend: Backend
) -> None:
    assert lock_names(backend) == ()
    session = open_session()
    names = ("a", "a/b", "a/b/c", "z.1")
    grants = [Mutex(session, name).acquire(timeout_s=10) for name in reversed(names)]
    assert lock_names(backend) == names
    grants[-1].release()
    assert lock_names(backend) == names[1:]
    session.close()
    assert lock_names(backend) == ()


def test_the_queue_tells_holders_from_those_who_wait(
    open_session: OpenSession, backend: Backend
) -> None:
    lock = ReadWriteLock(open_session(), "m")
    first, second = lock.read.acquire(), ReadWriteLock(open_session(), "m").read.acquire()
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(Mutex(open_session(), "m").acquire, 60)
        wait_for_queue(backend, "m", 3)
        reading = pool.submit(ReadWriteLock(open_session(), "m").read.acquire, 60)
        wait_for_queue(backend, "m", 4)
        queue = lock_queue(backend, "m")
        assert [each.is_holding for each in queue] == [True, True, False, False]
        assert [each.is_shared for each in queue] == [True, True, False, True]
        assert [each.token for each in queue[:2]] == [first.token, second.token]
        assert len({each.session_id for each in queue}) == 4
        assert all("pid" in each.owner for each in queue)
        first.release()
        second.release()
        writing.result(timeout=20).release()
        reading.result(timeout=20).release()


def test_a_broken_lock_goes_to_the_next_and_its_holder_knows_within_a_second(
    open_session: OpenSession, backend: Backend
) -> None:
    old = Mutex(open_session(), "m").acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Mutex(open_session(), "m").acquire, 60)
        wait_for_queue(backend, "m", 2)
        (broken,) = break_lock(backend, "m")
        broken_s = time.monotonic()
        assert broken.token == old.token
        assert old.lost.wait(5)
        assert time.monotonic() - broken_s < 1.0
        new = waiting.result(timeout=20)
    assert not old.held
    assert new.held
    assert new.token > old.token
    with pytest.raises(GrantLostError):
        old.check()


def test_a_break_with_a_token_spares_every_other_holder(
    open_session: OpenSession, backend: Backend
) -> None:
    first = ReadWriteLock(open_session(), "m").read.acquire()
    second = ReadWriteLock(open_session(), "m").read.acquire()
    assert break_lock(backend, "m", FencingToken(first.token - 1)) == ()
    (broken,) = break_lock(backend, "m", first.token)
    assert broken.token == first.token
    assert first.lost.wait(5)
    assert break_lock(backend, "m", first.token) == ()
    assert second.held
    second.check()


def test_a_break_takes_the_lock_from_all_readers_and_from_nobody_who_waits(
    open_session: OpenSession, backend: Backend
) -> None:
    assert break_lock(backend, "m") == ()
    grants = [ReadWriteLock(open_session(), "m").read.acquire() for _ in range(2)]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Mutex(open_session(), "m").acquire, 60)
        wait_for_queue(backend, "m", 3)
        assert len(break_lock(backend, "m")) == 2
        assert waiting.result(timeout=20).held
    assert all(grant.lost.wait(5) for grant in grants)
    with pytest.raises(AcquireTimeoutError):
        Mutex(open_session(), "m").acquire(timeout_s=0.1)
