"""Sessions on a clock that the test moves and a store that the test can hang."""

import threading
from collections.abc import Iterator

import pytest

from pliska.locks import (
    LockUsageError,
    ManualClock,
    Mutex,
    Session,
    SessionLostError,
    StoreUnavailableError,
)
from pliska.locks.backends.memory import MemoryBackend
from pliska.locks.backends.memory_store import MemoryStore
from pliska.locks.lease import LEASE_S_MAX, LEASE_S_MIN
from services.waiting import wait_until


class FrozenStore(MemoryBackend):
    """A store that stops answering: calls hang until `thaw`, as with a hung socket."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._answers = threading.Event()
        self.hanging = threading.Event()
        self.thaw()

    def freeze(self) -> None:
        self.hanging.clear()
        self._answers.clear()

    def thaw(self) -> None:
        self._answers.set()

    def open_store(self) -> MemoryStore:
        if not self._answers.is_set():
            self.hanging.set()
            self._answers.wait(20)
        return super().open_store()

    def open_session(self, lease_s: float, timeout_s: float = 10.0):  # type: ignore[no-untyped-def]
        session = super().open_session(lease_s, timeout_s)
        renew = session.renew

        def renew_when_answering(timeout_s: float) -> None:
            self.open_store()
            renew(timeout_s)

        session.renew = renew_when_answering  # type: ignore[method-assign]
        return session


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def backend(store: MemoryStore) -> Iterator[FrozenStore]:
    backend = FrozenStore(store)
    yield backend
    backend.thaw()


@pytest.fixture
def session(backend: FrozenStore, clock: ManualClock) -> Iterator[Session]:
    with Session.open(backend, 9.0, clock) as session:
        yield session


def test_renewals_keep_the_session_alive_beyond_its_lease(
    session: Session, clock: ManualClock
) -> None:
    for _ in range(10):
        clock.advance(3.0)
        wait_until(lambda: session.remaining_s > 8)
    session.check()
    assert session.is_alive


def test_the_loss_is_true_at_the_deadline_before_any_thread_ran(
    session: Session, backend: FrozenStore, clock: ManualClock
) -> None:
    grant = Mutex(session, "m").acquire()
    backend.freeze()
    clock.advance(8.5)
    assert session.is_alive
    assert grant.held
    assert grant.remaining_s == pytest.approx(0.05)
    clock.advance(0.1)
    assert not grant.held
    assert not session.is_alive
    assert session.remaining_s == 0
    assert grant.lost.is_set()
    with pytest.raises(SessionLostError, match="no renewal"):
        session.check()


def test_the_loss_is_announced_while_the_store_hangs(
    session: Session, backend: FrozenStore, clock: ManualClock
) -> None:
    told = [threading.Event(), threading.Event()]
    grant = Mutex(session, "m").acquire()
    session.on_lost(told[0].set)
    grant.on_lost(told[1].set)
    backend.freeze()
    clock.advance(3.0)
    assert backend.hanging.wait(10)
    clock.advance(6.0)
    assert session.lost.wait(10)
    assert grant.lost.wait(10)
    assert all(each.wait(10) for each in told)
    backend.thaw()


def test_an_answer_that_comes_after_the_deadline_does_not_bring_the_session_back(
    session: Session, backend: FrozenStore, clock: ManualClock, store: MemoryStore
) -> None:
    grant = Mutex(session, "m").acquire()
    backend.freeze()
    clock.advance(3.0)
    assert backend.hanging.wait(10)
    clock.advance(5.7)
    backend.thaw()  # the store renews: its lease, which has no margin, still ran
    assert session.lost.wait(10)
    assert not grant.held
    # What the late renewal kept alive in the store is given back at once.
    wait_until(lambda: store.get(grant.guard().key) is None)


def test_a_loss_that_was_seen_stays_even_if_the_clock_could_go_back(
    session: Session, clock: ManualClock, backend: FrozenStore
) -> None:
    backend.freeze()
    clock.advance(9.0)
    assert not session.is_alive
    clock.advance(-9.0)
    assert not session.is_alive


def test_a_store_that_ended_the_session_is_believed(session: Session, clock: ManualClock) -> None:
    session.backend_session.close(1)
    clock.advance(3.1)
    assert session.lost.wait(10)
    with pytest.raises(SessionLostError, match="store ended it"):
        session.check()


def test_failing_renewals_are_retried_sooner_and_recovered_from(
    store: MemoryStore, clock: ManualClock
) -> None:
    backend, failures, tries = MemoryBackend(store), [True], threading.Semaphore(0)
    with Session.open(backend, 9.0, clock) as session:
        renew = session.backend_session.renew

        def renew_or_fail(timeout_s: float) -> None:
            tries.release()
            if failures[0]:
                raise StoreUnavailableError("no answer")
            renew(timeout_s)

        session.backend_session.renew = renew_or_fail  # type: ignore[method-assign]
        clock.advance(3.0)
        assert tries.acquire(timeout=10)
        clock.advance(0.95)
        assert tries.acquire(timeout=10)
        failures[0] = False
        clock.advance(0.95)
        wait_until(lambda: session.remaining_s > 8)


def test_closing_frees_what_was_held_and_tells_nobody_it_was_lost(
    session: Session, store: MemoryStore
) -> None:
    told = threading.Event()
    session.on_lost(told.set)
    grant = Mutex(session, "m").acquire()
    session.close()
    session.close()
    assert store.get(grant.guard().key) is None
    assert session.lost.is_set()
    assert not grant.held
    assert not told.wait(0.05)
    with pytest.raises(SessionLostError, match="closed"):
        session.check()


def test_a_release_that_the_store_did_not_take_is_made_up_for(
    store: MemoryStore, clock: ManualClock
) -> None:
    backend = MemoryBackend(store)
    with Session.open(backend, 9.0, clock) as session:
        grant = Mutex(session, "m").acquire()
        delete, failures = backend.delete, [True]

        def delete_or_fail(*arguments: object, **named: object) -> bool:
            if failures[0]:
                raise StoreUnavailableError("no answer")
            return delete(*arguments, **named)  # type: ignore[arg-type]

        backend.delete = delete_or_fail  # type: ignore[method-assign]
        assert grant.release()
        assert not grant.held
        assert store.get(grant.guard().key) is not None
        failures[0] = False
        clock.advance(0.6)
        wait_until(lambda: store.get(grant.guard().key) is None)


@pytest.mark.parametrize("lease_s", [LEASE_S_MIN, LEASE_S_MAX])
def test_a_lease_at_the_limit_is_taken(
    store: MemoryStore, clock: ManualClock, lease_s: float
) -> None:
    with Session.open(MemoryBackend(store), lease_s, clock) as session:
        assert session.lease_s == lease_s


@pytest.mark.parametrize("lease_s", [LEASE_S_MIN / 2, LEASE_S_MAX + 1, 0, -1, float("nan")])
def test_a_lease_out_of_range_is_refused(store: MemoryStore, lease_s: float) -> None:
    with pytest.raises(LockUsageError, match="lease"):
        Session.open(MemoryBackend(store), lease_s)
