"""The seam for stores whose other clients know a lock by one key, as Consul's do.

A backend of such a store offers this as `key_locks`. No other backend needs it.
"""

from typing import Protocol, runtime_checkable

from pliska.locks.backends.base import CALL_TIMEOUT_S, BackendSession, Record


class KeyLocks(Protocol):
    """Holds keys in the way in which the store's own tools do. Safe to use from any thread."""

    def lock(
        self, key: str, value: bytes, session: BackendSession, timeout_s: float = CALL_TIMEOUT_S
    ) -> Record:
        """Hold `key` for a session, until `unlock` or the session's end.

        Returns:
            The key's record; `created` is when this holding began.

        Raises:
            ConflictError: Somebody else holds it, or did until a moment ago.
            LockUsageError: The key is there and is no lock.
            SessionLostError: The session has ended.
        """

    def unlock(self, key: str, session: BackendSession, timeout_s: float = CALL_TIMEOUT_S) -> bool:
        """Free `key` and remove it; False when the session did not hold it."""


@runtime_checkable
class KeyLockBackend(Protocol):
    """A backend whose store has such locks."""

    @property
    def key_locks(self) -> KeyLocks:
        """The locks, through the backend's connections."""
