"""A store inside this process: the twin of the real ones for tests and simulation.

It keeps every promise of `Backend` except surviving the process. Two backends
on one `MemoryStore` behave like two processes on one server. With a
`ManualClock` leases end only when the test says so; sessions and recipes on it
then take the same clock.
"""

from collections.abc import Sequence

from pliska.locks.backends.base import (
    CALL_TIMEOUT_S,
    Change,
    Check,
    Guarantee,
    Listing,
    Record,
    Revision,
)
from pliska.locks.backends.keys import check_key, check_operations
from pliska.locks.backends.listening_feed import ListeningFeed
from pliska.locks.backends.memory_store import MemoryStore
from pliska.locks.backends.transactional import TransactionalBackend
from pliska.locks.errors import StoreUnavailableError
from pliska.locks.process import HomeProcess


class MemorySession:
    """A lease in a `MemoryStore`."""

    def __init__(self, store: MemoryStore, lease_s: float) -> None:
        self._store = store
        self.lease_s = lease_s
        self.id = store.open_session(lease_s)

    def renew(self, timeout_s: float) -> None:  # noqa: ARG002 - the protocol's; nothing here waits
        """See `BackendSession.renew`."""
        self._store.renew(self.id)

    def close(self, timeout_s: float) -> None:  # noqa: ARG002 - the protocol's; nothing here waits
        """See `BackendSession.close`."""
        self._store.close_session(self.id)


class MemoryBackend(TransactionalBackend):
    """One client of a `MemoryStore`."""

    guarantees = frozenset({Guarantee.LINEARIZABLE_READS})

    def __init__(self, store: MemoryStore, address: str = "memory:") -> None:
        self._store = store
        self._home = HomeProcess()
        self._is_closed = False
        self.address = address

    def open_session(self, lease_s: float, timeout_s: float = CALL_TIMEOUT_S) -> MemorySession:  # noqa: ARG002
        """See `Backend.open_session`."""
        return MemorySession(self.open_store(), lease_s)

    def get(self, key: str, timeout_s: float = CALL_TIMEOUT_S) -> Record | None:  # noqa: ARG002
        """See `Backend.get`."""
        check_key(key)
        return self.open_store().get(key)

    def list(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> Listing:  # noqa: ARG002
        """See `Backend.list`."""
        check_key(directory)
        return self.open_store().list(directory)

    def directories(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:  # noqa: ARG002
        """See `Backend.directories`."""
        check_key(directory)
        return self.open_store().directories(directory)

    def transact(
        self,
        checks: Sequence[Check],
        changes: Sequence[Change],
        timeout_s: float = CALL_TIMEOUT_S,  # noqa: ARG002
    ) -> Revision:
        """See `Backend.transact`."""
        check_operations(checks, changes)
        return self.open_store().transact(checks, changes)

    def wait_for_change(self, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`."""
        check_key(path)
        return self.open_store().wait_for_change(path, after, timeout_s)

    def open_feed(self) -> ListeningFeed:
        """See `Backend.open_feed`."""
        store = self.open_store()
        return ListeningFeed(store, store.clock, lambda: self.open_store().end_expired_sessions())

    def close(self) -> None:
        """See `Backend.close`."""
        self._is_closed = True

    def open_store(self) -> MemoryStore:
        """The store, unless this client of it is closed."""
        self._home.check()
        if self._is_closed:
            raise StoreUnavailableError(f"the backend {self.address} is closed: connect again")
        return self._store
