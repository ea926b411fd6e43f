import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pliska.locks import Mutex, Session, connect
from pliska.locks.owner import acting_for


class Owner:
    """Anything that can be weakly referenced."""


@pytest.fixture
def mutex() -> Iterator[Mutex]:
    with Session.open(connect("memory:")) as session:
        yield Mutex(session, "m")


def test_threads_that_act_for_one_owner_hold_together(mutex: Mutex) -> None:
    owner = Owner()

    def attempt() -> bool:
        with acting_for(owner):
            return mutex.try_acquire() is not None

    with acting_for(owner):
        assert mutex.try_acquire() is not None
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(attempt).result()
        assert pool.submit(mutex.try_acquire).result() is None
    assert mutex.try_acquire() is None


def test_one_thread_that_acts_for_two_owners_does_not_mix_them_up(mutex: Mutex) -> None:
    first, second = Owner(), Owner()
    with acting_for(first):
        grant = mutex.try_acquire()
    with acting_for(second):
        assert mutex.try_acquire() is None
    assert grant is not None
    grant.release()
    with acting_for(second):
        assert mutex.try_acquire() is not None


def test_what_a_thread_held_that_has_ended_is_not_its_successors(mutex: Mutex) -> None:
    for _ in range(3):
        thread = threading.Thread(target=mutex.try_acquire)
        thread.start()
        thread.join()
    assert mutex.try_acquire() is None
