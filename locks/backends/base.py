"""The primitive layer that every recipe in `pliska.locks` is written on.

A backend keeps small records under slash-separated keys, gives each change one
64-bit revision, ties ephemeral records to a session, applies several changes
as one conditional transaction, and wakes whoever waits for a change. It knows
nothing of mutexes or elections.

Every call blocks for at most `timeout_s` and is safe to make from any thread.
No call may be made from a forked child: it raises `ForkedProcessError`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NewType, Protocol

Revision = NewType("Revision", int)
"""Position in the store's history: ZooKeeper's zxid, Consul's ModifyIndex, SQLite's counter."""

CALL_TIMEOUT_S = 10.0
"""How long one call may take when the caller names no time of its own."""

LIST_S_MIN = 0.5
"""What the listing of `wait_and_list` may take even when the wait was to be shorter."""


class Guarantee(Enum):
    """What a backend promises; recipes and tests ask for these by name."""

    LINEARIZABLE_READS = auto()
    """A read sees every write that was acknowledged before it began."""
    DURABLE_WRITES = auto()
    """An acknowledged write survives power loss."""
    CRASH_DETECTION = auto()
    """A killed process loses its session at once rather than at the end of its lease."""
    CROSS_HOST = auto()
    """Processes on several machines share the store."""
    LASTING_WATCHES = auto()
    """To wait again for what has not changed asks the store nothing."""


@dataclass(frozen=True, slots=True)
class Record:
    """One stored key as it was read.

    Attributes:
        key: Slash-separated path without a leading slash.
        value: At most `RECORD_BYTES_MAX` bytes.
        created: Revision at which this key was created; a deleted and
            re-created key has a new one.
        modified: Revision of the last write.
        session_id: The session whose end deletes the record, or None.
    """

    key: str
    value: bytes
    created: Revision
    modified: Revision
    session_id: str | None = None


RECORD_BYTES_MAX = 256 * 1024
"""Below ZooKeeper's 1 MB and Consul's 512 KB, so that a record fits every store."""

TRANSACTION_OPERATIONS_MAX = 60
"""Checks plus changes of one transaction; Consul 1.8 allows 64."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The direct children of a directory, oldest first, and the store's revision."""

    records: tuple[Record, ...]
    revision: Revision


@dataclass(frozen=True, slots=True)
class Absent:
    """Check: no record has this key."""

    key: str


@dataclass(frozen=True, slots=True)
class Unmodified:
    """Check: the record exists and was last written at `modified`."""

    key: str
    modified: Revision


@dataclass(frozen=True, slots=True)
class Existing:
    """Check: the record exists and is still the one created at `created`.

    A holder's contender record exists exactly as long as its session and its
    grant, so this is the check that fences a write (see `Grant.guard`).
    """

    key: str
    created: Revision


@dataclass(frozen=True, slots=True)
class Create:
    """Change: add a record; the transaction fails when the key exists."""

    key: str
    value: bytes
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """Change: replace the value; the transaction fails when the key is absent."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Change: remove the record; the transaction fails when the key is absent."""

    key: str


Check = Absent | Unmodified | Existing
Change = Create | Update | Delete


class BackendSession(Protocol):
    """A lease in the store: its end deletes the records that were created under it."""

    @property
    def id(self) -> str:
        """Name of the session in the store."""

    @property
    def lease_s(self) -> float:
        """The lease that the store granted, which may differ from the one asked for."""

    def renew(self, timeout_s: float) -> None:
        """Ask the store to count the lease from now on.

        Raises:
            SessionLostError: The store has ended the session; it cannot come back.
            StoreUnavailableError: No answer in time; the lease runs on.
        """

    def close(self, timeout_s: float) -> None:
        """End the session and delete its records; harmless when it has already ended."""


class ChangeFeed(Protocol):
    """Tells one thread of the changes of many paths, where `wait_for_change` takes one thread each.

    Any thread may follow, forget and wake; one thread waits, and closes it at the end.
    """

    def follow(self, path: str) -> None:
        """Begin to report `path`: a key, or a directory for the records directly below it.

        It is reported once as soon as its changes can be seen, and then each
        time it has changed. Whoever reads it after each report is never out of date for long.
        """

    def forget(self, path: str) -> None:
        """Report `path` no longer, except perhaps what was found out already."""

    def wait(self, timeout_s: float) -> Mapping[str, frozenset[str] | None]:
        """Wait until a path that is followed has changed since the last call.

        Returns:
            The keys among which those are that changed, by the path that was
            followed; None in their place when it is not known which, if any.
            Empty when the time passed, after `wake`, and now and then without
            a reason.

        Raises:
            StoreError: Changes cannot be seen now. What is followed stays so:
                when a later call succeeds, it reports every path.
        """

    def wake(self) -> None:
        """End the wait that goes on, or the next one."""

    def close(self) -> None:
        """Free connections; whoever waits closes. After it no call but `wait` does harm."""


class Backend(Protocol):
    """A coordination store: embedded, memory, ZooKeeper or Consul."""

    @property
    def address(self) -> str:
        """The address that `connect` was given, without credentials."""

    @property
    def guarantees(self) -> frozenset[Guarantee]:
        """What this store promises."""

    def open_session(self, lease_s: float, timeout_s: float = CALL_TIMEOUT_S) -> BackendSession:
        """Begin a session whose lease lasts `lease_s` after each renewal."""

    def get(self, key: str, timeout_s: float = CALL_TIMEOUT_S) -> Record | None:
        """Read one record, linearizably where the store can; None when absent."""

    def list(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> Listing:
        """Read the records directly below `directory`, oldest creation first."""

    def directories(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:
        """The names of the directories directly below `directory`, sorted.

        A directory is there as long as a record is, at any depth below it; a
        store may go on naming one that has become empty.
        """

    def create(
        self,
        key: str,
        value: bytes,
        session: BackendSession | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Record:
        """Add a record. Raises `ConflictError` when the key exists."""

    def create_and_list(
        self,
        key: str,
        value: bytes,
        session: BackendSession | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> tuple[Record, Listing | None]:
        """`create`, and `list` of the key's directory as it is then or later.

        A store does both in one exchange where it can. The listing is None when
        the record was added and its directory could not be read: list again.
        """

    def update(
        self, key: str, value: bytes, expected: Revision, timeout_s: float = CALL_TIMEOUT_S
    ) -> Record:
        """Compare and set. Raises `ConflictError` unless `modified == expected`."""

    def delete(
        self, key: str, expected: Revision | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> bool:
        """Remove a record; True when it was there.

        With `expected` it raises `ConflictError` unless `modified == expected`.
        """

    def transact(
        self,
        checks: Sequence[Check],
        changes: Sequence[Change],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Revision:
        """Apply all changes at one revision if all checks hold, else none.

        Returns:
            The revision of the transaction: `created` or `modified` of what it wrote.

        Raises:
            ConflictError: A check failed; nothing was applied.
            OutcomeUnknownError: The answer was lost; read before trying again.
        """

    def wait_for_change(self, path: str, after: Revision, timeout_s: float) -> bool:
        """Wait until the record `path`, or one directly below it, changed after `after`.

        Level-triggered: returns True at once when the change already happened,
        and may return True without one. Whoever is woken reads again.

        Args:
            path: A key or a directory.
            after: The revision of the caller's last read (a `Listing.revision`,
                or a record's `modified`).
            timeout_s: How long to wait.

        Returns:
            False when the time passed without a change.
        """

    def wait_and_list(
        self, path: str, after: Revision, directory: str, timeout_s: float
    ) -> Listing | None:
        """`wait_for_change`, and then `list` of a directory with at least that change in it.

        A store reads as soon as it hears of the change where it can.

        Args:
            path: The directory, or a record that was in it at `after`.
            after: The revision of the caller's last listing.
            directory: What to list.
            timeout_s: How long to wait, and how long the listing may take then,
                but at least `LIST_S_MIN`.

        Returns:
            The listing, now and then without a change; None when the time passed without one.
        """

    def open_feed(self) -> ChangeFeed:
        """A feed that follows nothing yet; it fails once this backend is closed."""

    def close(self) -> None:
        """Free connections and threads. Sessions are not closed: their leases run out."""
