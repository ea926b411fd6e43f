"""Transactions on the embedded store's file: who may write, how durably, at which revision.

Writers queue on a lock file, since SQLite's own busy handler starves them. A
write that touches what outlives its session is on disk when it returns; one
that touches only ephemeral records is not, because power loss ends their
sessions anyway. Revisions are reserved on disk in blocks, so that after power
loss none is given out twice: a fencing token stays unique for ever.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pliska.locks.backends.embedded_schema import open_connection, prepare, translated_errors
from pliska.locks.backends.embedded_table import Table
from pliska.locks.backends.host import HostClock
from pliska.locks.backends.lock_file import LockFile
from pliska.locks.clock import SystemClock
from pliska.locks.errors import (
    LockUsageError,
    OutcomeUnknownError,
    StoreFormatError,
    StoreUnavailableError,
)

CONNECTIONS_IDLE_MAX = 8


class Database:
    """The file PATH/coordination.db, as one backend of one process uses it."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        self.path = directory / "coordination.db"
        self.lock_file = LockFile.shared(directory / "coordination.lock")
        self.clock = SystemClock()
        self._host_clock = HostClock.of_this_process()
        self._idle: list[sqlite3.Connection] = []
        self._idle_lock = threading.Lock()
        self._is_closed = False
        self._identity: tuple[int, int] | None = None
        try:
            with self.lock_file.turn(self.clock.now_s() + timeout_s):
                self._open_file()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for the calling thread alone."""
        self._check_file()
        with self._idle_lock:
            connection = self._idle.pop() if self._idle else None
        with translated_errors(self.path):
            connection = connection or open_connection(self.path)
            try:
                yield connection
            finally:
                self._put_back(connection)

    def lasting_connection(self) -> sqlite3.Connection:
        """A connection that the caller keeps and closes."""
        self._check_file()
        with translated_errors(self.path):
            return open_connection(self.path)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the store throughout."""
        with self.connection() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def writing(
        self,
        timeout_s: float,
        must_be_durable: Callable[[sqlite3.Connection], bool] = lambda _: False,
    ) -> Iterator[Table]:
        """A transaction that commits when the block ends and vanishes when it raises.

        Sessions whose lease has run out are ended first, in a transaction of their own.

        Args:
            timeout_s: How long to wait for the turn to write.
            must_be_durable: Decides, before the transaction begins and with
                all other writers locked out, whether it must survive power loss.

        Raises:
            StoreUnavailableError: The turn did not come; nothing was applied.
            OutcomeUnknownError: The commit failed in a way that leaves both possible.
        """
        with self.lock_file.turn(self.clock.now_s() + timeout_s), self.connection() as connection:
            is_durable = self._has_no_reserve(connection) or must_be_durable(connection)
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            expired = _expired_sessions(connection, self.clock.now_s())
            if expired:
                with self._transaction(connection) as table:
                    table.end_sessions(expired)
            with self._transaction(connection) as table:
                if is_durable:
                    table.reserve_revisions()
                yield table

    def end_dead_sessions(self, suspects: Iterable[str], timeout_s: float) -> None:
        """End those of `suspects` whose process died; `writing` ends those whose lease ran out."""
        is_abandoned = self.lock_file.is_abandoned
        with self.writing(timeout_s) as table:
            table.end_sessions(
                id_ for id_ in suspects if not table.has_session(id_) or is_abandoned(int(id_, 16))
            )

    def close(self) -> None:
        """Close what is idle; what is in use closes when it comes back."""
        with self._idle_lock:
            if self._is_closed:
                return
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self.lock_file.close()

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[Table]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield Table(connection)
        except BaseException:
            if connection.in_transaction:  # SQLite itself rolls back when the disk is full
                connection.execute("ROLLBACK")
            raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise OutcomeUnknownError(
                f"{self.path}: the commit failed ({error}), and it is not certain that nothing "
                "was written: read before trying again"
            ) from error

    def _has_no_reserve(self, connection: sqlite3.Connection) -> bool:
        revision, reserved, boot_id, namespace = connection.execute(
            "SELECT revision, reserved, boot_id, time_namespace FROM store"
        ).fetchone()
        if HostClock(boot_id, namespace) != self._host_clock:
            raise StoreFormatError(
                f"{self.path} is in use by processes with another clock (another machine, or "
                "another time namespace): one store serves one machine"
            )
        # Two: ended sessions may need a revision before the caller does.
        return bool(revision + 2 > reserved)

    def _open_file(self) -> None:
        self.path.touch(mode=0o600)
        with translated_errors(self.path):
            connection = open_connection(self.path)
            try:
                prepare(connection, self.path)
                self._identity = _identity(self.path)
                self._adopt_clock(connection)
            finally:
                self._put_back(connection)

    def _adopt_clock(self, connection: sqlite3.Connection) -> None:
        """After a reboot every lease is void and unreserved revisions may be lost."""
        stored = HostClock(
            *connection.execute("SELECT boot_id, time_namespace FROM store").fetchone()
        )
        if stored == self._host_clock:
            return
        sessions = [row[0] for row in connection.execute("SELECT id FROM sessions")]
        if stored.boot_id == self._host_clock.boot_id:
            live = [id_ for id_ in sessions if not self.lock_file.is_abandoned(int(id_, 16))]
            if live:
                raise LockUsageError(
                    f"{self.path} is in use by processes in another time namespace, whose leases "
                    "this process cannot read: run all of them in one"
                )
        connection.execute("PRAGMA synchronous = FULL")
        with self._transaction(connection) as table:
            connection.execute(
                "UPDATE store SET revision = max(revision, reserved), boot_id = ?,"
                " time_namespace = ?",
                (self._host_clock.boot_id, self._host_clock.time_namespace),
            )
            table.end_sessions(sessions)
            table.reserve_revisions()

    def _check_file(self) -> None:
        if self._is_closed:
            raise StoreUnavailableError(f"{self.path}: this backend is closed; connect again")
        if _identity(self.path) != self._identity:
            raise StoreFormatError(
                f"{self.path} was deleted or replaced while in use: stop every process that uses "
                "it, then start again"
            )

    def _put_back(self, connection: sqlite3.Connection) -> None:
        with self._idle_lock:
            is_kept = (
                not self._is_closed
                and not connection.in_transaction
                and len(self._idle) < CONNECTIONS_IDLE_MAX
            )
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()


def _expired_sessions(connection: sqlite3.Connection, now_s: float) -> list[str]:
    rows = connection.execute("SELECT id FROM sessions WHERE ends_s <= ?", (now_s,))
    return [row[0] for row in rows.fetchall()]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - on every call, and half the cost of Path.stat
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
