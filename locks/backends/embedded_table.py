"""The embedded store's tables as one write transaction reads and changes them."""

import sqlite3
from collections.abc import Iterable, Sequence

from pliska.locks.backends.base import Record, Revision
from pliska.locks.backends.keys import directory_of

REVISIONS_RESERVED = 4_096
"""How many revisions may be given out between two that wait for the disk."""
CHANGES_KEPT = 10_000
"""How many revisions the change log reaches back, at least."""
PRUNE_EVERY = 1_000


class Table:
    """The store inside one write transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def next_revision(self) -> Revision:
        """Take the revision for this transaction's changes."""
        (revision,) = self._connection.execute(
            "UPDATE store SET revision = revision + 1 RETURNING revision"
        ).fetchone()
        if revision % PRUNE_EVERY == 0:
            self._prune(revision - CHANGES_KEPT)
        return Revision(revision)

    def reserve_revisions(self) -> None:
        """Let so many revisions be given out without waiting for the disk; needs a durable one."""
        self._connection.execute("UPDATE store SET reserved = revision + ?", (REVISIONS_RESERVED,))

    def read(self, key: str) -> Record | None:
        """See `transactional.Table`."""
        row = self._connection.execute(
            "SELECT key, value, created, modified, session_id FROM records WHERE key = ?", (key,)
        ).fetchone()
        return None if row is None else Record(*row)

    def has_session(self, session_id: str) -> bool:
        """See `transactional.Table`."""
        query = "SELECT 1 FROM sessions WHERE id = ?"
        return self._connection.execute(query, (session_id,)).fetchone() is not None

    def write(self, record: Record) -> None:
        """See `transactional.Table`."""
        self._connection.execute(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?)",
            (
                record.key,
                directory_of(record.key),
                record.value,
                record.created,
                record.modified,
                record.session_id,
            ),
        )

    def remove(self, record: Record) -> None:
        """See `transactional.Table`."""
        self._connection.execute("DELETE FROM records WHERE key = ?", (record.key,))

    def log_changes(self, revision: Revision, keys: Sequence[str]) -> None:
        """Tell those who wait for a change of these keys."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO changes VALUES (?, ?, ?)",
            [(revision, key, directory_of(key)) for key in keys],
        )

    def put_session(self, session_id: str, lease_s: float, ends_s: float) -> None:
        """Add a session."""
        self._connection.execute(
            "INSERT INTO sessions VALUES (?, ?, ?)", (session_id, lease_s, ends_s)
        )

    def extend_session(self, session_id: str, now_s: float) -> bool:
        """Count the lease from now on; False when the session has ended."""
        cursor = self._connection.execute(
            "UPDATE sessions SET ends_s = ? + lease_s WHERE id = ?", (now_s, session_id)
        )
        return cursor.rowcount == 1

    def end_sessions(self, session_ids: Iterable[str]) -> None:
        """Delete sessions and their records."""
        keys: list[str] = []
        for session_id in session_ids:
            self._connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            rows = self._connection.execute(
                "DELETE FROM records WHERE session_id = ? RETURNING key", (session_id,)
            )
            keys.extend(row[0] for row in rows.fetchall())
        if keys:
            self.log_changes(self.next_revision(), keys)

    def _prune(self, revision: int) -> None:
        self._connection.execute("DELETE FROM changes WHERE revision <= ?", (revision,))
        self._connection.execute("UPDATE store SET log_from = max(log_from, ?)", (revision,))
