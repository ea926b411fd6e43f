"""A session that somebody else ends, on every store (S1, S3, S8)."""

import threading
from collections.abc import Callable

import pytest

from pliska.locks import (
    Election,
    FencedStore,
    Grant,
    GrantLostError,
    Mutex,
    ReadWriteLock,
    Semaphore,
    Session,
    SessionLostError,
    StaleTokenError,
)
from services.theft import steal
from services.waiting import wait_until

OpenSession = Callable[..., Session]

NOTICE_S = 1.0
SLACK_S = 2.0
"""What a busy machine adds."""

RECIPES: dict[str, Callable[[Session], Grant]] = {
    "mutex": lambda session: Mutex(session, "m").acquire(timeout_s=20),
    "write": lambda session: ReadWriteLock(session, "rw").write.acquire(timeout_s=20),
    "semaphore": lambda session: Semaphore(session, "s", 1).acquire(timeout_s=20),
    "leader": lambda session: Election(session, "e", "c").campaign(timeout_s=20),
}


@pytest.fixture(params=RECIPES)
def acquire(request: pytest.FixtureRequest) -> Callable[[Session], Grant]:
    return RECIPES[request.param]


def test_the_robbed_know_within_a_second_and_the_next_comes_in(
    acquire: Callable[[Session], Grant], open_session: OpenSession, address: str
) -> None:
    victim, next_one = open_session(), open_session()
    grant, told = acquire(victim), threading.Event()
    grant.on_lost(told.set)
    assert steal(address, victim.backend_session)
    assert told.wait(NOTICE_S + SLACK_S)
    assert not grant.held
    with pytest.raises(GrantLostError):
        grant.check()
    later = acquire(next_one)
    assert later.token > grant.token
    fenced = FencedStore(next_one.backend, "fenced")
    fenced.write("x", b"theirs", later.token)
    with pytest.raises(StaleTokenError):
        fenced.write("x", b"late", grant.token)


def test_a_release_by_the_robbed_says_that_nothing_was_held(
    acquire: Callable[[Session], Grant], open_session: OpenSession, address: str
) -> None:
    victim = open_session()
    grant = acquire(victim)
    assert steal(address, victim.backend_session)
    assert not grant.release()
    assert not grant.held


def test_a_stolen_session_gets_nothing_more(
    acquire: Callable[[Session], Grant], open_session: OpenSession, address: str
) -> None:
    victim = open_session(3.0)
    acquire(victim).release()
    assert steal(address, victim.backend_session)
    with pytest.raises(SessionLostError):
        acquire(victim)
    wait_until(lambda: not victim.is_alive)
