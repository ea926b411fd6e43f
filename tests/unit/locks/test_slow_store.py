"""Whichever call to the store outlasts the lease: who comes in holds, and who does not is told."""

from collections.abc import Callable, Sequence

import pytest

from pliska.locks import (
    Barrier,
    Change,
    Check,
    Election,
    Grant,
    Listing,
    ManualClock,
    Mutex,
    ReadWriteLock,
    Record,
    Revision,
    Semaphore,
    Session,
    SessionLostError,
)
from pliska.locks.backends.base import CALL_TIMEOUT_S
from pliska.locks.backends.memory import MemoryBackend
from pliska.locks.backends.memory_store import MemoryStore

LEASE_S = 9.0
CALLS_MAX = 20

Acquire = Callable[[Session], Grant]


class SlowStore(MemoryBackend):
    """A store whose answer to the call of a chosen number takes two leases."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryStore(clock))
        self._clock = clock
        self.calls_left = CALLS_MAX

    def get(self, key: str, timeout_s: float = CALL_TIMEOUT_S) -> Record | None:
        record = super().get(key, timeout_s)
        self._answer()
        return record

    def list(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> Listing:
        listing = super().list(directory, timeout_s)
        self._answer()
        return listing

    def transact(
        self,
        checks: Sequence[Check],
        changes: Sequence[Change],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Revision:
        revision = super().transact(checks, changes, timeout_s)
        self._answer()
        return revision

    def _answer(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            self._clock.advance(2 * LEASE_S)


RECIPES: dict[str, Acquire] = {
    "mutex": lambda session: Mutex(session, "m").acquire(),
    "read": lambda session: ReadWriteLock(session, "rw").read.acquire(),
    "write": lambda session: ReadWriteLock(session, "rw").write.acquire(),
    "semaphore": lambda session: Semaphore(session, "s", 2).acquire(),
    "leader": lambda session: Election(session, "e", "c1").campaign(),
    "barrier": lambda session: Barrier(session, "b", 1).enter(),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_nobody_gets_what_is_lost_already(recipe: str) -> None:
    outcomes = []
    for number in range(1, CALLS_MAX):
        clock = ManualClock()
        store = SlowStore(clock)
        with Session.open(store, LEASE_S, clock) as session:
            store.calls_left = number
            try:
                grant = RECIPES[recipe](session)
            except SessionLostError:
                outcomes.append("told")
            else:
                assert grant.held, f"call {number} outlasted the lease"
                outcomes.append("held")
    assert outcomes[0] == "told"
    assert outcomes[-1] == "held"
