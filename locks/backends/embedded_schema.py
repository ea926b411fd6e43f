"""The tables of the embedded store, and how its file is opened and recognised.

`store` has one row: the revision, up to where revisions are reserved on disk,
how far back the change log is complete, and the clock that leases are in.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pliska.locks.errors import LockUsageError, StoreError, StoreFormatError, StoreUnavailableError

SCHEMA_VERSION = 1
APPLICATION_ID = 0x504C534B  # "PLSK"

WAL_PAGES = 1_000
"""The write-ahead log is folded into the database when it has this many pages."""
WAL_BYTES_MAX = 8 * 1024 * 1024
"""What may stay of its file after that."""

_TABLES = """
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    revision INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    log_from INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    time_namespace TEXT NOT NULL
);
INSERT INTO store VALUES (1, 0, 0, 0, '', '');
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    lease_s REAL NOT NULL,
    ends_s REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE records (
    key TEXT PRIMARY KEY,
    directory TEXT NOT NULL,
    value BLOB NOT NULL,
    created INTEGER NOT NULL,
    modified INTEGER NOT NULL,
    session_id TEXT
);
CREATE INDEX records_by_age ON records (directory, created, key);
CREATE INDEX records_by_session ON records (session_id) WHERE session_id IS NOT NULL;
CREATE TABLE changes (
    revision INTEGER NOT NULL,
    key TEXT NOT NULL,
    directory TEXT NOT NULL,
    PRIMARY KEY (revision, key)
) WITHOUT ROWID;
"""


def open_connection(path: Path) -> sqlite3.Connection:
    """Open the database at `path`, which exists; for one thread at a time."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        connection.executescript(
            f"""
            PRAGMA busy_timeout = 1000;
            PRAGMA synchronous = NORMAL;
            PRAGMA wal_autocheckpoint = {WAL_PAGES};
            PRAGMA journal_size_limit = {WAL_BYTES_MAX};
            PRAGMA trusted_schema = OFF;
            """
        )
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new store, or check those of an old one. Under the writers' lock.

    Raises:
        StoreFormatError: The file is another program's, or a newer version's.
        LockUsageError: The filesystem cannot keep a write-ahead log.
    """
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables == 0:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise LockUsageError(f"{path} is on a filesystem without shared memory: use another")
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} {marks} COMMIT;")
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application_id != APPLICATION_ID:
        raise StoreFormatError(f"{path} is a database of another program: choose another directory")
    if version != SCHEMA_VERSION:
        raise StoreFormatError(
            f"{path} has schema version {version} and this Pliska reads {SCHEMA_VERSION}: "
            "use the version of Pliska that wrote it, or start with an empty directory"
        )


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path) from error


def _translated(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreFormatError(
            f"{path} is damaged or no database ({error}): restore it, or start with an empty "
            "directory"
        )
    return StoreUnavailableError(f"{path} cannot be used now: {error}")
