"""What the stores have in common: single changes are transactions of one.

`TransactionalBackend` gives a store with `get`, `list` and `transact` the rest of the
record calls; `apply` decides a transaction for the stores that we keep
ourselves. Neither does I/O of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from pliska.locks.backends.base import (
    CALL_TIMEOUT_S,
    LIST_S_MIN,
    Absent,
    BackendSession,
    Change,
    Check,
    Create,
    Delete,
    Existing,
    Listing,
    Record,
    Revision,
    Unmodified,
    Update,
)
from pliska.locks.backends.keys import directory_of
from pliska.locks.errors import ConflictError, SessionLostError, StoreUnavailableError


class TransactionalBackend(ABC):
    """The record calls of `Backend` in terms of `get`, `list` and `transact`."""

    @abstractmethod
    def get(self, key: str, timeout_s: float = CALL_TIMEOUT_S) -> Record | None:
        """See `Backend.get`."""

    @abstractmethod
    def list(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> Listing:
        """See `Backend.list`."""

    @abstractmethod
    def wait_for_change(self, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`."""

    @abstractmethod
    def transact(
        self,
        checks: Sequence[Check],
        changes: Sequence[Change],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Revision:
        """See `Backend.transact`."""

    def create(
        self,
        key: str,
        value: bytes,
        session: BackendSession | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Record:
        """See `Backend.create`."""
        session_id = None if session is None else session.id
        revision = self.transact([], [Create(key, value, session_id)], timeout_s)
        return Record(key, value, revision, revision, session_id)

    def create_and_list(
        self,
        key: str,
        value: bytes,
        session: BackendSession | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> tuple[Record, Listing | None]:
        """See `Backend.create_and_list`: one after the other."""
        record = self.create(key, value, session, timeout_s)
        try:
            return record, self.list(directory_of(key), timeout_s)
        except StoreUnavailableError:
            return record, None

    def wait_and_list(
        self, path: str, after: Revision, directory: str, timeout_s: float
    ) -> Listing | None:
        """See `Backend.wait_and_list`: one after the other."""
        if not self.wait_for_change(path, after, timeout_s):
            return None
        return self.list(directory, max(timeout_s, LIST_S_MIN))

    def update(
        self, key: str, value: bytes, expected: Revision, timeout_s: float = CALL_TIMEOUT_S
    ) -> Record:
        """See `Backend.update`."""
        record = self.get(key, timeout_s)
        check = Unmodified(key, expected)
        reason = refusal(check, record)
        if record is None or reason is not None:
            raise ConflictError(reason)
        revision = self.transact([check], [Update(key, value)], timeout_s)
        return replace(record, value=value, modified=revision)

    def delete(
        self, key: str, expected: Revision | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> bool:
        """See `Backend.delete`."""
        if expected is not None:
            self.transact([Unmodified(key, expected)], [Delete(key)], timeout_s)
            return True
        try:
            self.transact([], [Delete(key)], timeout_s)
        except ConflictError:
            return False
        return True


class Table(Protocol):
    """The records of a store, as one transaction reads and writes them."""

    def read(self, key: str) -> Record | None:
        """The record as this transaction sees it."""

    def has_session(self, session_id: str) -> bool:
        """Whether the session lives."""

    def write(self, record: Record) -> None:
        """Add or replace a record."""

    def remove(self, record: Record) -> None:
        """Remove a record."""


def apply(
    table: Table, checks: Sequence[Check], changes: Sequence[Change], revision: Revision
) -> None:
    """Make all changes at `revision` if all checks hold.

    Raises:
        ConflictError: A check failed. The caller undoes what was written.
        SessionLostError: A record was to belong to a session that has ended.
    """
    for check in checks:
        reason = refusal(check, table.read(check.key))
        if reason is not None:
            raise ConflictError(reason)
    for change in changes:
        _apply_one(table, change, revision)


def _apply_one(table: Table, change: Change, revision: Revision) -> None:
    record = table.read(change.key)
    if isinstance(change, Create):
        if record is not None:
            raise ConflictError(f"{change.key!r} exists since revision {record.created}")
        if change.session_id is not None and not table.has_session(change.session_id):
            raise SessionLostError(f"session {change.session_id} has ended: open a new one")
        table.write(Record(change.key, change.value, revision, revision, change.session_id))
    elif record is None:
        raise ConflictError(f"{change.key!r} does not exist")
    elif isinstance(change, Update):
        table.write(replace(record, value=change.value, modified=revision))
    else:
        table.remove(record)


def refusal(check: Check, record: Record | None) -> str | None:
    """Say why `check` does not hold for the record under its key; None when it holds."""
    match check:
        case Absent(key):
            return None if record is None else f"{key!r} exists since revision {record.created}"
        case Unmodified(key, modified):
            if record is None:
                return f"{key!r} does not exist; expected it at revision {modified}"
            if record.modified != modified:
                return f"{key!r} is at revision {record.modified}; expected {modified}"
        case Existing(key, created):
            if record is None:
                return f"{key!r} is gone: what it guarded is no longer ours"
            if record.created != created:
                return f"{key!r} was created anew at {record.created}; expected {created}"
    return None
