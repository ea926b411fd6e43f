"""The store of one machine: a SQLite file that its processes share. No service to run.

Leases are in boot time, so all processes must be of one boot and one time
namespace; a reboot ends every session. A process that dies loses its sessions
as soon as anybody looks (`lock_file`), a frozen one at the end of its lease.
"""

import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from pliska.locks.backends.base import (
    CALL_TIMEOUT_S,
    Change,
    Check,
    Create,
    Guarantee,
    Listing,
    Record,
    Revision,
)
from pliska.locks.backends.embedded_database import Database
from pliska.locks.backends.embedded_watch import ChangeWatcher
from pliska.locks.backends.host import refuse_network_filesystem
from pliska.locks.backends.keys import check_key, check_operations, child_directories
from pliska.locks.backends.listening_feed import ListeningFeed
from pliska.locks.backends.lock_file import SESSION_BYTE_MAX, SESSION_BYTE_MIN
from pliska.locks.backends.transactional import TransactionalBackend, apply
from pliska.locks.errors import LockUsageError, SessionLostError
from pliska.locks.process import HomeProcess

_RECORDS = """
SELECT records.key, records.value, records.created, records.modified, records.session_id,
       sessions.ends_s
FROM records LEFT JOIN sessions ON sessions.id = records.session_id
"""


class EmbeddedBackend(TransactionalBackend):
    """One process's view of the store in a directory of this machine."""

    guarantees = frozenset(
        {Guarantee.LINEARIZABLE_READS, Guarantee.DURABLE_WRITES, Guarantee.CRASH_DETECTION}
    )

    def __init__(self, directory: Path, address: str, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Open the store, and make it when the directory is empty or missing.

        Raises:
            LockUsageError: The directory cannot be made, is on a network
                filesystem, or is in use from another time namespace.
            StoreFormatError: There is a file that is not a Pliska store.
        """
        self.address = address
        self._home = HomeProcess()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = directory.resolve(strict=True)
            refuse_network_filesystem(directory)
            self._database = Database(directory, timeout_s)
        except OSError as error:
            raise LockUsageError(f"{address} cannot hold a store: {error}") from error
        self._watcher = ChangeWatcher(self._database)

    def open_session(self, lease_s: float, timeout_s: float = CALL_TIMEOUT_S) -> "EmbeddedSession":
        """See `Backend.open_session`."""
        self._home.check()
        session = EmbeddedSession(self._database, self._watcher, lease_s)
        session.begin(timeout_s)
        return session

    def get(self, key: str, timeout_s: float = CALL_TIMEOUT_S) -> Record | None:
        """See `Backend.get`."""
        self._home.check()
        check_key(key)
        with self._database.connection() as connection:
            rows = connection.execute(f"{_RECORDS} WHERE records.key = ?", (key,)).fetchall()
        if self._end_dead_owners(rows, timeout_s):
            return self.get(key, timeout_s)
        return Record(*rows[0][:5]) if rows else None

    def list(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> Listing:
        """See `Backend.list`."""
        self._home.check()
        check_key(directory)
        with self._database.reading() as connection:
            rows = connection.execute(
                f"{_RECORDS} WHERE records.directory = ? ORDER BY records.created, records.key",
                (directory,),
            ).fetchall()
            (revision,) = connection.execute("SELECT revision FROM store").fetchone()
        if self._end_dead_owners(rows, timeout_s):
            return self.list(directory, timeout_s)
        return Listing(tuple(Record(*row[:5]) for row in rows), Revision(revision))

    def directories(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:  # noqa: ARG002
        """See `Backend.directories`. May name one whose last owner has just died."""
        self._home.check()
        check_key(directory)
        with self._database.connection() as connection:
            # "0" follows "/" in the order of text: all that begins with "directory/".
            rows = connection.execute(
                "SELECT DISTINCT directory FROM records WHERE directory > ? AND directory < ?",
                (f"{directory}/", f"{directory}0"),
            ).fetchall()
        return child_directories(directory, (row[0] for row in rows))

    def transact(
        self,
        checks: Sequence[Check],
        changes: Sequence[Change],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Revision:
        """See `Backend.transact`."""
        self._home.check()
        check_operations(checks, changes)
        with self._database.writing(
            timeout_s, lambda connection: _outlives_sessions(connection, changes)
        ) as table:
            revision = table.next_revision()
            apply(table, checks, changes, revision)
            table.log_changes(revision, [change.key for change in changes])
        self._watcher.nudge()
        return revision

    def wait_for_change(self, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`."""
        self._home.check()
        check_key(path)
        return self._watcher.wait(path, after, timeout_s)

    def open_feed(self) -> ListeningFeed:
        """See `Backend.open_feed`."""
        self._home.check()
        return ListeningFeed(self._watcher, self._database.clock, self._watcher.quiet_until_s)

    def close(self) -> None:
        """See `Backend.close`."""
        self._home.check()
        self._watcher.close()
        self._database.close()

    def _end_dead_owners(self, rows: Sequence[tuple[object, ...]], timeout_s: float) -> bool:
        """End the dead sessions among the owners of records just read; True if there was one."""
        now_s = self._database.clock.now_s()
        owners = {str(row[4]): row[5] for row in rows if row[4] is not None}
        dead = [
            id_
            for id_, ends_s in owners.items()
            if not isinstance(ends_s, float)
            or ends_s <= now_s
            or self._database.lock_file.is_abandoned(int(id_, 16))
        ]
        if dead:
            self._database.end_dead_sessions(dead, timeout_s)
            self._watcher.nudge()
        return bool(dead)


class EmbeddedSession:
    """A row with a lease, and a byte of the lock file that dies with this process."""

    def __init__(self, database: Database, watcher: ChangeWatcher, lease_s: float) -> None:
        self._database = database
        self._watcher = watcher
        self._home = HomeProcess()
        self._byte = SESSION_BYTE_MIN + secrets.randbelow(SESSION_BYTE_MAX - SESSION_BYTE_MIN)
        self.id = f"{self._byte:016x}"
        self.lease_s = lease_s

    def begin(self, timeout_s: float) -> None:
        """Add the session to the store."""
        self._database.lock_file.hold_session(self._byte)
        try:
            with self._database.writing(timeout_s) as table:
                table.put_session(
                    self.id, self.lease_s, self._database.clock.now_s() + self.lease_s
                )
        except BaseException:
            self._database.lock_file.release_session(self._byte)
            raise

    def renew(self, timeout_s: float) -> None:
        """See `BackendSession.renew`."""
        self._home.check()
        with self._database.writing(timeout_s) as table:
            if not table.extend_session(self.id, self._database.clock.now_s()):
                raise SessionLostError(f"session {self.id} has ended: open a new one")

    def close(self, timeout_s: float) -> None:
        """See `BackendSession.close`."""
        self._home.check()
        try:
            with self._database.writing(timeout_s) as table:
                table.end_sessions([self.id])
        finally:
            # Even when the write failed: whoever looks next finds the session abandoned.
            self._database.lock_file.release_session(self._byte)
        self._watcher.nudge()


def _outlives_sessions(connection: sqlite3.Connection, changes: Sequence[Change]) -> bool:
    """Whether a change touches a record that belongs to no session."""
    for change in changes:
        if isinstance(change, Create):
            if change.session_id is None:
                return True
        else:
            query = "SELECT 1 FROM records WHERE key = ? AND session_id IS NULL"
            if connection.execute(query, (change.key,)).fetchone() is not None:
                return True
    return False
