"""The safety rules of a barrier, on every store."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from pliska.locks import (
    AcquireCancelledError,
    AcquireTimeoutError,
    Backend,
    Barrier,
    BrokenBarrierError,
    Grant,
    LockError,
    LockUsageError,
    Session,
)

OpenSession = Callable[..., Session]
Another = Callable[[], Barrier]
MEMBERS = "barriers/b/members"
GENERATION = f"{MEMBERS}/generation"


@pytest.fixture
def another(open_session: OpenSession) -> Another:
    """Makes one more member of a barrier for three, with a session of its own."""
    return lambda: Barrier(open_session(), "b", 3)


def members(backend: Backend) -> int:
    return sum(record.key != GENERATION for record in backend.list(MEMBERS).records)


def wait_for_members(backend: Backend, count: int) -> None:
    deadline_s = time.monotonic() + 20
    while members(backend) != count or (count and not arrived(backend, count)):
        assert time.monotonic() < deadline_s, "they did not arrive"
        time.sleep(0.002)


def arrived(backend: Backend, count: int) -> bool:
    record = backend.get(GENERATION)
    return record is not None and record.value.count(MEMBERS.encode()) == count


def enter(pool: ThreadPoolExecutor, barrier: Barrier) -> "Future[Grant]":
    return pool.submit(barrier.enter, 60)


def test_all_go_on_when_the_last_has_arrived_and_nobody_before(
    another: Another, backend: Backend
) -> None:
    with ThreadPoolExecutor(3) as pool:
        futures = [enter(pool, another()) for _ in range(2)]
        wait_for_members(backend, 2)
        time.sleep(0.1)
        assert not any(future.done() for future in futures)
        futures.append(enter(pool, another()))
        passages = [future.result(timeout=20) for future in futures]
    assert all(passage.held for passage in passages)
    assert len({passage.token for passage in passages}) == 3
    for passage in passages:
        assert passage.release()
    assert members(backend) == 0


def test_generation_follows_generation_and_members_never_mix(
    another: Another, backend: Backend
) -> None:
    rounds, lock, log = 5, threading.Lock(), []

    def work(barrier: Barrier) -> None:
        for number in range(rounds):
            with barrier.enter(timeout_s=60), lock:
                log.append(number)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(work, another()) for _ in range(3)]:
            future.result(timeout=60)
    assert log == sorted(log)
    assert members(backend) == 0


def test_whoever_comes_early_for_the_next_generation_does_not_join_this_one(
    another: Another, backend: Backend
) -> None:
    with ThreadPoolExecutor(6) as pool:
        first = [enter(pool, another()) for _ in range(3)]
        passages = [future.result(timeout=20) for future in first]
        second = [enter(pool, another()) for _ in range(3)]
        time.sleep(0.2)
        assert not any(future.done() for future in second)
        for passage in passages:
            passage.release()
        assert all(future.result(timeout=20).held for future in second)


def test_a_member_whose_session_ends_breaks_it_for_the_others(
    another: Another, open_session: OpenSession, backend: Backend
) -> None:
    session = open_session()
    with ThreadPoolExecutor(3) as pool:
        futures = [enter(pool, another()), enter(pool, Barrier(session, "b", 3))]
        wait_for_members(backend, 2)
        session.close()
        with pytest.raises(BrokenBarrierError, match="died while 2 of 3"):
            futures[0].result(timeout=20)
        again = [enter(pool, another()) for _ in range(3)]
        assert all(future.result(timeout=20).held for future in again)


def test_a_member_who_stops_waiting_breaks_it_for_the_others(
    another: Another, backend: Backend
) -> None:
    cancelled = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        waiting = enter(pool, another())
        wait_for_members(backend, 1)
        with pytest.raises(AcquireTimeoutError):
            another().enter(timeout_s=0.2)
        with pytest.raises(BrokenBarrierError):
            waiting.result(timeout=20)
        waiting = pool.submit(another().enter, None, cancelled)
        wait_for_members(backend, 1)
        cancelled.set()
        with pytest.raises(AcquireCancelledError):
            waiting.result(timeout=20)
    assert members(backend) == 0


def test_what_an_earlier_run_left_behind_never_opens_it(
    another: Another, open_session: OpenSession, backend: Backend
) -> None:
    session = open_session()
    with ThreadPoolExecutor(6) as pool:
        lost = [pool.submit(Barrier(session, "b", 3).enter) for _ in range(2)]
        wait_for_members(backend, 2)
        session.close()
        for future in lost:
            with pytest.raises(LockError):
                future.result(timeout=20)
        assert arrived(backend, 2)  # the record of those two is still there
        late = enter(pool, another())
        wait_for_members(backend, 1)
        time.sleep(0.1)
        assert not late.done()
        others = [enter(pool, another()) for _ in range(2)]
        assert all(future.result(timeout=20).held for future in [late, *others])


def test_members_killed_inside_do_not_hold_up_the_next_generation(
    another: Another, open_session: OpenSession
) -> None:
    session = open_session()
    with ThreadPoolExecutor(3) as pool:
        futures = [enter(pool, Barrier(session, "b", 3)) for _ in range(3)]
        passages = [future.result(timeout=20) for future in futures]
        session.close()
        assert not any(passage.held for passage in passages)
        again = [enter(pool, another()) for _ in range(3)]
        assert all(future.result(timeout=20).held for future in again)


def test_a_barrier_for_one_opens_at_once(open_session: OpenSession) -> None:
    barrier = Barrier(open_session(), "b", 1)
    for _ in range(3):
        with barrier.enter(timeout_s=10) as passage:
            assert passage.held


def test_entering_again_before_leaving_is_refused_rather_than_waited_for(
    open_session: OpenSession,
) -> None:
    barrier = Barrier(open_session(), "b", 1)
    with barrier.enter(), pytest.raises(LockUsageError, match="release that passage"):
        barrier.enter(timeout_s=5)


def test_another_number_of_parties_is_refused(
    another: Another, open_session: OpenSession, backend: Backend
) -> None:
    with ThreadPoolExecutor(3) as pool:
        waiting = [enter(pool, another())]
        wait_for_members(backend, 1)
        with pytest.raises(LockUsageError, match="gathers 3 parties and not 2"):
            Barrier(open_session(), "b", 2).enter(timeout_s=10)
        waiting += [enter(pool, another()) for _ in range(2)]
        assert all(future.result(timeout=20).held for future in waiting)
