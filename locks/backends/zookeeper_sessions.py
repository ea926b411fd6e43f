"""The sessions of one ZooKeeper client, and which records are theirs.

ZooKeeper ties a record to the connection that creates it, so the backend asks here
which connection a change has to take. A record counts as a session's own from before
its creation is sent until its deletion was answered. Safe to use from any thread.
"""

import itertools
from collections.abc import Sequence

from pliska.locks.backends.base import BackendSession, Change, Create, Delete
from pliska.locks.backends.keys import directory_of
from pliska.locks.backends.zookeeper_session import ZookeeperSession
from pliska.locks.errors import LockUsageError, SessionLostError

LIKELY_MAX = 8
"""Own records that a listing asks for together with the names."""


class ZookeeperSessions:
    """The sessions that one client opened or was handed."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_id: dict[str, ZookeeperSession] = {}

    def add(self, session: ZookeeperSession) -> None:
        """Take a new session in, and forget those that are over."""
        over = [id_ for id_, other in list(self._by_id.items()) if not other.link.is_usable]
        for session_id in over:
            self._by_id.pop(session_id, None)
        self._by_id[session.id] = session

    def find(self, session_id: str) -> ZookeeperSession:
        """Return a session by its id.

        Raises:
            SessionLostError: It has ended, or is not of this client.
        """
        session = self._by_id.get(session_id)
        if session is None or not session.link.is_usable:
            raise SessionLostError(
                f"session {session_id} has ended or is not of this client: open a new one"
            )
        return session

    def adopt(self, session: BackendSession) -> ZookeeperSession:
        """Return a session, which may have been another backend's until now.

        Raises:
            SessionLostError: As `find`.
        """
        if isinstance(session, ZookeeperSession):
            self._by_id.setdefault(session.id, session)
        return self.find(session.id)

    def creator(self, changes: Sequence[Change]) -> ZookeeperSession | None:
        """Return the session that created records are to belong to.

        Raises:
            LockUsageError: There is more than one.
            SessionLostError: As `find`.
        """
        ids = {each.session_id for each in changes if isinstance(each, Create)} - {None}
        if not ids:
            return None
        if len(ids) > 1:
            raise LockUsageError("on ZooKeeper one transaction creates records of one session only")
        return self.find(str(*ids))

    def owner(self, change: Change) -> ZookeeperSession | None:
        """Return the session that a deleted record belongs to.

        Its own connection carries the deletion, behind a creation whose answer was lost.
        """
        if not isinstance(change, Delete):
            return None
        for session in list(self._by_id.values()):
            if change.key in session.keys and session.link.is_usable:
                return session
        return None

    def owns(self, key: str) -> bool:
        """Whether a record is of one of them."""
        return any(key in session.keys for session in list(self._by_id.values()))

    def names_in(self, directory: str) -> Sequence[str]:
        """Return the names of some of their records there, `LIKELY_MAX` at most."""
        keys = (key for each in list(self._by_id.values()) for key in tuple(each.keys))
        names = (key.rpartition("/")[2] for key in keys if directory_of(key) == directory)
        return tuple(itertools.islice(names, LIKELY_MAX))

    def leave(self) -> None:
        """Let go of their connections; the servers end the sessions when their leases are over."""
        for session in list(self._by_id.values()):
            session.link.leave()
