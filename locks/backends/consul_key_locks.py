"""Locks as Consul's own clients keep them: a key with their flags, acquired by a session.

They leave a released key behind, so a key that nobody holds is as free as an
absent one.
"""

from pliska.locks.backends.base import CALL_TIMEOUT_S, BackendSession, Record
from pliska.locks.backends.consul_agent import ConsulAgent
from pliska.locks.backends.consul_pair import GO_LOCK_FLAGS, record_of, written
from pliska.locks.backends.keys import check_key
from pliska.locks.errors import ConflictError, LockUsageError, SessionLostError
from pliska.locks.process import HomeProcess


class ConsulKeyLocks:
    """See `KeyLocks`."""

    def __init__(self, agent: ConsulAgent, prefix: str) -> None:
        self._agent = agent
        self._prefix = prefix
        self._home = HomeProcess()

    def lock(
        self, key: str, value: bytes, session: BackendSession, timeout_s: float = CALL_TIMEOUT_S
    ) -> Record:
        """See `KeyLocks.lock`."""
        self._home.check()
        check_key(key)
        full_key = self._prefix + key
        pairs = self._agent.read(full_key, timeout_s).pairs
        if pairs and pairs[0]["Flags"] != GO_LOCK_FLAGS:
            raise LockUsageError(f"{key!r} is there and is no lock: choose another key")
        if pairs and pairs[0].get("Session") not in (None, session.id):
            raise ConflictError(f"{key!r} is held by session {pairs[0]['Session']}")
        unchanged = (
            {"Verb": "check-index", "Key": full_key, "Index": pairs[0]["ModifyIndex"]}
            if pairs
            else {"Verb": "check-not-exists", "Key": full_key}
        )
        pair = written(value, GO_LOCK_FLAGS)
        lock = {"Verb": "lock", "Key": full_key, "Session": session.id, **pair}
        outcome = self._agent.transact([unchanged, lock], timeout_s)
        for refused in outcome.refused:
            if refused.operation == 1 and "session" in refused.reason:
                raise SessionLostError(f"session {session.id} has ended: open a new one")
        if outcome.refused:
            # Held, or under the lock-delay after its last holder's session was lost.
            raise ConflictError(outcome.refused[0].reason)
        return record_of({**outcome.pairs[-1], "Value": value}, self._prefix)

    def unlock(self, key: str, session: BackendSession, timeout_s: float = CALL_TIMEOUT_S) -> bool:
        """See `KeyLocks.unlock`."""
        self._home.check()
        check_key(key)
        full_key = self._prefix + key
        outcome = self._agent.transact(
            [
                {"Verb": "check-session", "Key": full_key, "Session": session.id},
                {"Verb": "delete", "Key": full_key},
            ],
            timeout_s,
        )
        return not outcome.refused
