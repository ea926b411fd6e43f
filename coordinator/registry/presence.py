"""A node's record in the store, kept there as long as its process lives and is heard of.

Each session has an incarnation of its own: when a lease was lost, what comes after
it is another life of the node, and answers from before do not count for it.
"""

import dataclasses
import secrets

from pliska.coordinator.registry.nodes import NodeRecord, node_key
from pliska.locks import (
    Backend,
    Clock,
    ConflictError,
    OutcomeUnknownError,
    Record,
    Session,
    SessionLostError,
    StoreUnavailableError,
    SystemClock,
)

ATTEMPTS_MAX = 5


class Presence:
    """Shows one node in the store. Not for use from several threads, except `is_alive`.

    Args:
        backend: The store.
        lease_s: How long others may still see the node after its process died.
        clock: Where the time comes from.
    """

    def __init__(self, backend: Backend, lease_s: float, clock: Clock | None = None) -> None:
        self._backend = backend
        self._lease_s = lease_s
        self._clock = clock or SystemClock()
        self._session: Session | None = None
        self._shown: Record | None = None
        self.incarnation = ""

    @property
    def is_alive(self) -> bool:
        """Whether the lease runs, as far as is known here."""
        session = self._session
        return session is not None and session.is_alive

    def renew(self, record: NodeRecord) -> None:
        """Begin a new life where the last one has ended, and show the node in it.

        Whoever looks at the alias after this is either counted on by operations, or
        sees what they made of it.

        Raises:
            StoreError: The store does not answer.
        """
        if not self.is_alive:
            if self._session is not None:
                self._session.close()
            self._session = Session.open(self._backend, self._lease_s, self._clock)
            self._shown = None
            self.incarnation = secrets.token_hex(8)
        if self._shown is None:
            self.show(record)

    def show(self, record: NodeRecord) -> None:
        """Make the store show `record`, with this life's incarnation.

        Raises:
            SessionLostError: The lease was lost meanwhile.
            StoreError: The store does not answer.
        """
        record = dataclasses.replace(record, incarnation=self.incarnation)
        key, value = node_key(record), record.to_bytes()
        for _ in range(ATTEMPTS_MAX):
            if self._shown is not None and self._shown.value == value:
                return
            try:
                self._shown = self._write(key, value)
            except (ConflictError, OutcomeUnknownError):
                self._shown = self._backend.get(key)
            else:
                return
        raise StoreUnavailableError(f"the store does not keep {key} as it is written")

    def close(self) -> None:
        """Remove the node from the store."""
        if self._session is not None:
            self._session.close()

    def _write(self, key: str, value: bytes) -> Record:
        session = self._session
        if session is None:
            raise SessionLostError("there is no session yet: renew comes first")
        session.check()
        if self._shown is None:
            return self._backend.create(key, value, session.backend_session)
        return self._backend.update(key, value, self._shown.modified)
