"""The records, leases and listeners of a store inside this process; `memory` is its client.

With a `ManualClock` leases end only when the test says so.
"""

import itertools
import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pliska.locks.backends.base import Change, Check, Listing, Record, Revision
from pliska.locks.backends.keys import child_directories, directory_of
from pliska.locks.backends.listening_feed import Listener
from pliska.locks.backends.transactional import apply
from pliska.locks.clock import Clock, SystemClock
from pliska.locks.errors import SessionLostError

CHANGES_KEPT = 10_000
"""How far back the change log reaches; whoever asks about earlier is told to read again."""


@dataclass(slots=True)
class _Lease:
    lease_s: float
    ends_s: float


class MemoryStore:
    """The records, the sessions and who waits for what. Safe to use from any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self._leases: dict[str, _Lease] = {}
        self._session_numbers = itertools.count(1)
        self._revision = Revision(0)
        self._changes: deque[tuple[Revision, str]] = deque(maxlen=CHANGES_KEPT)
        self._listeners: dict[str, list[Listener]] = {}

    @classmethod
    def named(cls, name: str) -> "MemoryStore":
        """The store of this process called `name`; a new one when the name is empty."""
        if not name:
            return cls()
        with _named_stores_lock:
            return _named_stores.setdefault(name, cls())

    def get(self, key: str) -> Record | None:
        """Read one record."""
        with self._lock:
            self._end_expired_sessions()
            return self._records.get(key)

    def list(self, directory: str) -> Listing:
        """Read the records directly below a directory, oldest first."""
        with self._lock:
            self._end_expired_sessions()
            children = [r for r in self._records.values() if directory_of(r.key) == directory]
            children.sort(key=lambda record: (record.created, record.key))
            return Listing(tuple(children), self._revision)

    def directories(self, directory: str) -> tuple[str, ...]:
        """Name the directories directly below a directory."""
        with self._lock:
            self._end_expired_sessions()
            return child_directories(directory, map(directory_of, self._records))

    def transact(self, checks: Sequence[Check], changes: Sequence[Change]) -> Revision:
        """Apply all changes or none."""
        with self._lock:
            self._end_expired_sessions()
            revision = Revision(self._revision + 1)
            table = _Table(self._records, MappingProxyType(self._leases))
            try:
                apply(table, checks, changes, revision)
            except BaseException:
                table.undo()
                raise
            self._publish(revision, [change.key for change in changes])
            return revision

    def open_session(self, lease_s: float) -> str:
        """Begin a session and return its id."""
        with self._lock:
            session_id = f"memory-{next(self._session_numbers)}"
            self._leases[session_id] = _Lease(lease_s, self.clock.now_s() + lease_s)
            return session_id

    def renew(self, session_id: str) -> None:
        """Count a session's lease from now on."""
        with self._lock:
            self._end_expired_sessions()
            lease = self._leases.get(session_id)
            if lease is None:
                raise SessionLostError(f"session {session_id} has ended: open a new one")
            lease.ends_s = self.clock.now_s() + lease.lease_s

    def close_session(self, session_id: str) -> None:
        """End a session and delete its records."""
        with self._lock:
            self._end_sessions([session_id])

    def wait_for_change(self, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`."""
        deadline_s = self.clock.now_s() + timeout_s
        with self._lock:
            condition = threading.Condition(self._lock)

            def listener(_path: str, _key: str | None) -> None:
                condition.notify_all()

            self._add_listener(path, listener)
            try:
                while not self._has_changed(path, after):
                    now_s = self.clock.now_s()
                    if now_s >= deadline_s:
                        return False
                    self.clock.wait(condition, min(deadline_s, self._next_end_s()))
                return True
            finally:
                self._remove_listener(path, listener)

    def listen(self, path: str, listener: Listener) -> None:
        """Tell `listener`, with the store locked, of each change of `path` or directly below it."""
        with self._lock:
            self._add_listener(path, listener)

    def unlisten(self, path: str, listener: Listener) -> None:
        """Tell it no more of `path`."""
        with self._lock:
            self._remove_listener(path, listener)

    def end_expired_sessions(self) -> float:
        """End the sessions whose lease ran out, and say when the next will."""
        with self._lock:
            self._end_expired_sessions()
            return self._next_end_s()

    def _add_listener(self, path: str, listener: Listener) -> None:
        self._listeners.setdefault(path, []).append(listener)

    def _remove_listener(self, path: str, listener: Listener) -> None:
        self._listeners[path].remove(listener)
        if not self._listeners[path]:
            del self._listeners[path]

    def _next_end_s(self) -> float:
        return min((lease.ends_s for lease in self._leases.values()), default=math.inf)

    def _has_changed(self, path: str, after: Revision) -> bool:
        self._end_expired_sessions()
        newer = itertools.takewhile(lambda change: change[0] > after, reversed(self._changes))
        if any(path in (key, directory_of(key)) for _, key in newer):
            return True
        if len(self._changes) < CHANGES_KEPT or after >= self._changes[0][0]:
            return False
        # The log does not reach back to `after`. A record that still stands
        # unmodified was not deleted in between, and 0 says that there was none.
        record = self._records.get(path)
        return after > 0 if record is None else record.modified > after

    def _end_expired_sessions(self) -> None:
        now_s = self.clock.now_s()
        self._end_sessions([id_ for id_, lease in self._leases.items() if lease.ends_s <= now_s])

    def _end_sessions(self, session_ids: Sequence[str]) -> None:
        for session_id in session_ids:
            self._leases.pop(session_id, None)
        ended = set(session_ids)
        keys = [record.key for record in self._records.values() if record.session_id in ended]
        for key in keys:
            del self._records[key]
        if keys:
            self._publish(Revision(self._revision + 1), keys)

    def _publish(self, revision: Revision, keys: Sequence[str]) -> None:
        self._revision = revision
        for key in keys:
            self._changes.append((revision, key))
            for path in (key, directory_of(key)):
                for listener in self._listeners.get(path, ()):
                    listener(path, key)


_named_stores: dict[str, MemoryStore] = {}
_named_stores_lock = threading.Lock()


class _Table:
    """The records as a transaction sees them; remembers what it replaced."""

    def __init__(self, records: dict[str, Record], leases: MappingProxyType[str, _Lease]) -> None:
        self._records = records
        self._leases = leases
        self._before: dict[str, Record | None] = {}

    def read(self, key: str) -> Record | None:
        return self._records.get(key)

    def has_session(self, session_id: str) -> bool:
        return session_id in self._leases

    def write(self, record: Record) -> None:
        self._before.setdefault(record.key, self._records.get(record.key))
        self._records[record.key] = record

    def remove(self, record: Record) -> None:
        self._before.setdefault(record.key, record)
        del self._records[record.key]

    def undo(self) -> None:
        for key, record in self._before.items():
            if record is None:
                self._records.pop(key, None)
            else:
                self._records[key] = record
