"""Waits for changes of the embedded store, and notices dead sessions while it waits.

One thread a backend asks SQLite whether anything was committed and wakes only
those whose path changed; waiting threads themselves cost nothing. It runs only
while somebody waits. What it finds in the change log has no gaps, since each
waiter first registers and then looks at what has happened already.
"""

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Iterable

from pliska.locks.backends.base import Revision
from pliska.locks.backends.embedded_database import Database
from pliska.locks.backends.embedded_schema import translated_errors
from pliska.locks.backends.listening_feed import Listener
from pliska.locks.errors import LockError, StoreUnavailableError

POLL_BUSY_S = 0.005
"""How often to look while the store is in use."""
POLL_IDLE_S = 0.015
"""How often to look when nothing was committed for `IDLE_AFTER_S`."""
IDLE_AFTER_S = 2.0
CRASH_CHECK_S = 0.02
"""How often to ask whether the processes of other sessions live."""
REAP_TIMEOUT_S = 1.0
FAULT_PAUSE_S = 0.2

_log = logging.getLogger(__name__)


class ChangeWatcher:
    """Tells listeners of this process when a path changes. Safe to use from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._listeners: dict[str, list[Listener]] = {}
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def wait(self, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`."""
        changed = threading.Event()

        def listener(_path: str, _key: str | None) -> None:
            changed.set()

        self.listen(path, listener)
        try:
            if self._has_changed(path, after):
                return True
            return changed.wait(timeout_s)
        finally:
            self.unlisten(path, listener)

    def listen(self, path: str, listener: Listener) -> None:
        """Tell `listener` of each change of `path`, or directly below it, from now on.

        Raises:
            StoreUnavailableError: The backend is closed.
        """
        with self._lock:
            self._check_open()
            if self._thread is None:
                self._thread = self._started_thread()
            is_first = not self._listeners
            self._listeners.setdefault(path, []).append(listener)
        if is_first:
            self._wake.set()

    def unlisten(self, path: str, listener: Listener) -> None:
        """Tell it no more of `path`."""
        with self._lock:
            self._listeners[path].remove(listener)
            if not self._listeners[path]:
                del self._listeners[path]

    def quiet_until_s(self) -> float:
        """For ever: listeners are told of all that happens.

        Raises:
            StoreUnavailableError: The backend is closed.
        """
        self._check_open()
        return math.inf

    def nudge(self) -> None:
        """Look at once: this process has committed something."""
        if self._listeners:
            self._wake.set()

    def close(self) -> None:
        """Stop the thread and wake everybody."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._notify_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailableError("this backend is closed: connect again")

    def _started_thread(self) -> threading.Thread:
        connection = self._database.lasting_connection()
        with translated_errors(self._database.path):
            (seen,) = connection.execute("SELECT revision FROM store").fetchone()
        poll = _Poll(self._database, connection, Revision(seen))
        thread = threading.Thread(
            target=self._run, args=(poll,), name="pliska-store-watch", daemon=True
        )
        thread.start()
        return thread

    def _has_changed(self, path: str, after: Revision) -> bool:
        with self._database.reading() as connection:
            logged = connection.execute(
                "SELECT 1 FROM changes WHERE revision > ? AND (key = ? OR directory = ?) LIMIT 1",
                (after, path, path),
            ).fetchone()
            if logged is not None:
                return True
            (log_from,) = connection.execute("SELECT log_from FROM store").fetchone()
            if after >= log_from:
                return False
            # The log does not reach back to `after`. A record that still stands
            # unmodified was not deleted in between, and 0 says that there was none.
            record = connection.execute(
                "SELECT modified FROM records WHERE key = ?", (path,)
            ).fetchone()
            return bool(after > 0 if record is None else record[0] > after)

    def _run(self, poll: "_Poll") -> None:
        while not self._is_closed:
            self._wake.wait(poll.pause_s if self._listeners else None)
            self._wake.clear()
            self._look(poll)
        poll.close()

    def _look(self, poll: "_Poll") -> None:
        try:
            self._notify(poll.changes())
            poll.end_dead_sessions()
        except LockError as error:
            # Whoever waits reads again and meets the error itself.
            poll.report(error)
            self._notify_all()
            if not self._is_closed:
                time.sleep(FAULT_PAUSE_S)

    def _notify(self, changes: Iterable[tuple[str, str]] | None) -> None:
        if changes is None:
            self._notify_all()
            return
        with self._lock:
            for key, directory in changes:
                for path in (key, directory):
                    for listener in self._listeners.get(path, ()):
                        listener(path, key)

    def _notify_all(self) -> None:
        with self._lock:
            for path, listeners in self._listeners.items():
                for listener in listeners:
                    listener(path, None)


class _Poll:
    """What the watching thread has seen so far."""

    def __init__(self, database: Database, connection: sqlite3.Connection, seen: Revision) -> None:
        self._database = database
        self._connection = connection
        self._seen = seen
        self._data_version = -1
        self._ends_s: dict[str, float] = {}
        self._last_change_s = 0.0
        self._next_crash_check_s = 0.0
        self._fault = ""

    def report(self, fault: LockError) -> None:
        """Log a fault, once for as long as it lasts."""
        if str(fault) != self._fault:
            self._fault = str(fault)
            _log.warning("watching the embedded store failed: reason=%s", fault)

    @property
    def pause_s(self) -> float:
        """How long to wait until the next look."""
        idle_s = self._database.clock.now_s() - self._last_change_s
        return POLL_BUSY_S if idle_s < IDLE_AFTER_S else POLL_IDLE_S

    def changes(self) -> Iterable[tuple[str, str]] | None:
        """The keys that changed since the last look, each with its directory; None for any."""
        with translated_errors(self._database.path):
            (data_version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if data_version == self._data_version:
                return ()
            changes = self._read_changes()
            self._data_version = data_version
            self._last_change_s = self._database.clock.now_s()
            return changes

    def _read_changes(self) -> Iterable[tuple[str, str]] | None:
        self._connection.execute("BEGIN")
        try:
            revision, log_from = self._connection.execute(
                "SELECT revision, log_from FROM store"
            ).fetchone()
            rows = self._connection.execute(
                "SELECT key, directory FROM changes WHERE revision > ?", (self._seen,)
            ).fetchall()
            self._ends_s = dict(self._connection.execute("SELECT id, ends_s FROM sessions"))
        finally:
            self._connection.execute("ROLLBACK")
        has_gap = self._seen < log_from
        self._seen = Revision(revision)
        return None if has_gap else rows

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def end_dead_sessions(self) -> None:
        """End the sessions whose lease ran out or whose process died."""
        now_s = self._database.clock.now_s()
        if now_s < self._next_crash_check_s:
            return
        self._next_crash_check_s = now_s + CRASH_CHECK_S
        is_abandoned = self._database.lock_file.is_abandoned
        dead = [
            id_
            for id_, ends_s in self._ends_s.items()
            if ends_s <= now_s or is_abandoned(int(id_, 16))
        ]
        if dead:
            self._database.end_dead_sessions(dead, REAP_TIMEOUT_S)
