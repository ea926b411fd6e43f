"""The safety rules of a semaphore, on every store."""

import random
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
    Semaphore,
    SemaphoreState,
    Session,
    resize_semaphore,
    semaphore_state,
)
from services.waiting import wait_until

OpenSession = Callable[..., Session]
Another = Callable[[], Semaphore]


@pytest.fixture
def another(open_session: OpenSession) -> Another:
    """Makes one more user of the semaphore, with a session of its own."""
    return lambda: Semaphore(open_session(), "s", 2)


def state(backend: Backend) -> SemaphoreState:
    found = semaphore_state(backend, "s")
    assert found is not None
    return found


def inside(backend: Backend) -> int:
    return len(state(backend).inside)


def wait_for_waiting(backend: Backend, count: int) -> None:
    wait_until(lambda: len(state(backend).waiting) == count)


def test_no_more_leases_than_its_size(another: Another, backend: Backend) -> None:
    assert semaphore_state(backend, "s") is None
    first, second = another().acquire(timeout_s=10), another().try_acquire()
    assert second is not None
    assert first.token < second.token
    third = another()
    assert third.try_acquire() is None
    with pytest.raises(AcquireTimeoutError):
        third.acquire(timeout_s=0.1)
    assert inside(backend) == 2
    first.release()
    grant = third.acquire(timeout_s=10)
    assert grant.token > second.token
    assert grant.held
    assert second.held
    assert not first.held


def test_each_acquire_is_a_lease_of_its_own(another: Another) -> None:
    semaphore = another()
    first, second = semaphore.acquire(), semaphore.acquire(timeout_s=10)
    assert first.token != second.token
    assert semaphore.try_acquire() is None
    first.release()
    assert second.held
    assert semaphore.try_acquire() is not None


def test_leases_are_given_in_the_order_of_arrival(another: Another, backend: Backend) -> None:
    held, order = [another().acquire(timeout_s=10) for _ in range(2)], []

    def take(number: int) -> None:
        with another().hold(timeout_s=60):
            order.append(number)

    with ThreadPoolExecutor(4) as pool:
        futures = []
        for number in range(4):
            futures.append(pool.submit(take, number))
            wait_for_waiting(backend, number + 1)
        assert another().try_acquire() is None
        held[0].release()
        for future in futures:
            future.result(timeout=20)
    assert order == sorted(order)


def test_a_try_does_not_overtake_those_who_wait(another: Another, backend: Backend) -> None:
    held = [another().acquire(timeout_s=10) for _ in range(2)]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(another().acquire, 30)
        wait_for_waiting(backend, 1)
        held[0].release()
        assert another().try_acquire() is None
        assert waiting.result(timeout=20).held


def test_a_larger_size_lets_those_in_who_wait(another: Another, backend: Backend) -> None:
    held = [another().acquire(timeout_s=10) for _ in range(2)]
    with ThreadPoolExecutor(3) as pool:
        waiting = []
        for number in range(3):
            waiting.append(pool.submit(another().acquire, 30))
            wait_for_waiting(backend, number + 1)
        assert resize_semaphore(backend, "s", 4) == 2
        assert waiting[0].result(timeout=20).held
        assert waiting[1].result(timeout=20).held
        assert not waiting[2].done()
        assert state(backend).size == 4
        held[0].release()
        assert waiting[2].result(timeout=20).held


def test_a_smaller_size_drains_and_revokes_nothing(another: Another, backend: Backend) -> None:
    resize_semaphore(backend, "s", 3)
    held = [another().acquire(timeout_s=10) for _ in range(3)]
    assert resize_semaphore(backend, "s", 1) == 3
    assert all(grant.held for grant in held)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(another().acquire, 30)
        wait_for_waiting(backend, 1)
        for grant in held[:2]:
            grant.release()
            time.sleep(0.1)
            assert not waiting.done()
            assert another().try_acquire() is None
        assert held[2].held
        held[2].release()
        assert waiting.result(timeout=20).held
    assert inside(backend) == 1


def test_the_size_that_is_stored_holds_whatever_others_ask_for(
    open_session: OpenSession, backend: Backend
) -> None:
    assert resize_semaphore(backend, "s", 1) is None
    first = Semaphore(open_session(), "s", 5)
    grant = first.acquire()
    assert first.try_acquire() is None
    assert grant.held
    assert state(backend).size == 1


def test_a_lease_ends_with_its_session(
    another: Another, open_session: OpenSession, backend: Backend
) -> None:
    session = open_session()
    semaphore = Semaphore(session, "s", 2)
    lost = [semaphore.acquire(), semaphore.acquire()]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(another().acquire, 60)
        wait_for_waiting(backend, 1)
        session.close()
        assert waiting.result(timeout=20).held
    assert not any(grant.held for grant in lost)
    assert inside(backend) == 1


def test_a_lease_removed_by_an_administrator_is_known_within_a_second(
    another: Another, backend: Backend
) -> None:
    kept, broken = another().acquire(timeout_s=10), another().acquire(timeout_s=10)
    backend.delete(broken.guard().key)
    removed_s = time.monotonic()
    assert broken.lost.wait(5)
    assert time.monotonic() - removed_s < 1.0
    assert not broken.release()
    assert kept.held
    assert another().try_acquire() is not None


def test_a_wait_that_ends_leaves_nothing_behind(another: Another, backend: Backend) -> None:
    held = [another().acquire(timeout_s=10) for _ in range(2)]
    cancelled = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(another().acquire, None, cancelled)
        wait_for_waiting(backend, 1)
        behind = pool.submit(another().acquire, 30)
        wait_for_waiting(backend, 2)
        cancelled.set()
        with pytest.raises(AcquireCancelledError):
            first.result(timeout=10)
        wait_for_waiting(backend, 1)
        held[0].release()
        assert behind.result(timeout=20).held
    assert state(backend).waiting == ()


def test_at_no_moment_are_there_more_leases_than_the_size_allows(
    another: Another, backend: Backend
) -> None:
    is_over, seen = threading.Event(), [0]
    random_ = random.Random(7)
    pauses = [[random_.uniform(0, 0.01) for _ in range(8)] for _ in range(5)]

    def watch() -> None:
        while not is_over.is_set():
            seen[0] = max(seen[0], inside(backend))

    def work(pauses: list[float]) -> None:
        semaphore = another()
        for index, pause_s in enumerate(pauses):
            grant: Grant | None = (
                semaphore.try_acquire() if index % 3 == 2 else semaphore.acquire(timeout_s=60)
            )
            time.sleep(pause_s)
            if grant is not None:
                grant.release()

    another().acquire(timeout_s=10).release()
    with ThreadPoolExecutor(6) as pool:
        watching = pool.submit(watch)
        for future in [pool.submit(work, each) for each in pauses]:
            future.result(timeout=60)
        is_over.set()
        watching.result(timeout=10)
    assert 1 <= seen[0] <= 2
