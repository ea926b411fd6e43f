"""ZooKeeper as a store: one connection for records and watches, one for each session.

A record is a node; revisions are zxids. Needs ZooKeeper 3.6 or newer; kazoo
carries connections and sessions, and none of its recipes is used.

What it promises, and what not: writes are linearizable and survive the loss of
a minority of servers. A read follows a `sync` on the same connection (or a
write, in `create_and_list`, or the announcement of a change, in
`wait_and_list`), so it sees what was acknowledged before it began, except in
the moments before a leader that was voted out notices. A server that has lost
its leader may still acknowledge a renewal, and the lease then runs out at the
leader by up to half a tick before its holder thinks so; a fencing token or a
guard is what protects a write then, as always.
"""

from collections.abc import Sequence
from dataclasses import replace

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from pliska.locks.backends.base import (
    CALL_TIMEOUT_S,
    LIST_S_MIN,
    BackendSession,
    Change,
    Check,
    Create,
    Guarantee,
    Listing,
    Record,
    Revision,
    Unmodified,
    Update,
)
from pliska.locks.backends.keys import check_key, check_operations
from pliska.locks.backends.transactional import TransactionalBackend
from pliska.locks.backends.zookeeper_connection import Purpose
from pliska.locks.backends.zookeeper_link import ZookeeperLink
from pliska.locks.backends.zookeeper_numbered import ZookeeperNumberedRecords
from pliska.locks.backends.zookeeper_options import ZookeeperOptions
from pliska.locks.backends.zookeeper_plan import Layout
from pliska.locks.backends.zookeeper_reads import (
    Node,
    children_read,
    children_reads,
    read_children,
    read_nodes,
)
from pliska.locks.backends.zookeeper_requests import Operation, Reply
from pliska.locks.backends.zookeeper_session import ZookeeperSession
from pliska.locks.backends.zookeeper_sessions import ZookeeperSessions
from pliska.locks.backends.zookeeper_watch import ZookeeperWatcher
from pliska.locks.backends.zookeeper_writes import Applied, Writer
from pliska.locks.clock import SystemClock
from pliska.locks.errors import (
    LockError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from pliska.locks.process import HomeProcess

RECORDS_SESSION_S = 6.0
"""Session timeout of the connection for records: a frozen server is left after two thirds of it."""
CLOSE_TIMEOUT_S = 1.0


class ZookeeperBackend(TransactionalBackend):
    """One client of an ensemble."""

    guarantees = frozenset(
        {
            Guarantee.LINEARIZABLE_READS,
            Guarantee.DURABLE_WRITES,
            Guarantee.CROSS_HOST,
            Guarantee.LASTING_WATCHES,
        }
    )

    def __init__(self, address: str, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Connect.

        Raises:
            LockUsageError: The address is malformed or names files that cannot be used.
            AccessDeniedError: The servers refuse the credential.
            StoreUnavailableError: No server answered within `timeout_s`.
        """
        self.address = address
        self._options = ZookeeperOptions.parse(address)
        self._layout = Layout(
            self._options.root,
            tuple(CREATOR_ALL_ACL if self._options.are_records_private else OPEN_ACL_UNSAFE),
        )
        self._home = HomeProcess()
        self._clock = SystemClock()
        self._sessions = ZookeeperSessions()
        self._watcher = ZookeeperWatcher()
        self._link = ZookeeperLink(self._options, RECORDS_SESSION_S, Purpose.RECORDS, self._watcher)
        self._writer = Writer(self._link, self._layout)
        self.numbered_records = ZookeeperNumberedRecords(
            self._layout, self._writer, self._sessions.find
        )
        try:
            self._link.wait_until_connected(self._clock.now_s() + timeout_s)
        except BaseException:
            self._link.leave()
            raise

    def open_session(self, lease_s: float, timeout_s: float = CALL_TIMEOUT_S) -> ZookeeperSession:
        """See `Backend.open_session`."""
        self._home.check()
        session = ZookeeperSession(self._options, lease_s, timeout_s)
        self._sessions.add(session)
        return session

    def get(self, key: str, timeout_s: float = CALL_TIMEOUT_S) -> Record | None:
        """See `Backend.get`."""
        self._home.check()
        check_key(key)
        until_s = self._clock.now_s() + timeout_s
        (node,) = read_nodes(self._link, [self._layout.path(key)], until_s)
        return None if node is None or node.is_directory else node.record(key)

    def list(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> Listing:
        """See `Backend.list`."""
        self._home.check()
        check_key(directory)
        until_s = self._clock.now_s() + timeout_s
        return _listing(directory, *self._children(directory, until_s))

    def directories(self, directory: str, timeout_s: float = CALL_TIMEOUT_S) -> tuple[str, ...]:
        """See `Backend.directories`."""
        self._home.check()
        check_key(directory)
        nodes, _ = self._children(directory, self._clock.now_s() + timeout_s)
        return tuple(sorted(name for name, node in (nodes or {}).items() if node.has_children))

    def create(
        self,
        key: str,
        value: bytes,
        session: BackendSession | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Record:
        """See `Backend.create`. The outcome is found out here when the record is a session's."""
        if session is None:
            return super().create(key, value, None, timeout_s)
        return self._create(key, value, self._sessions.adopt(session), (), timeout_s)[0]

    def create_and_list(
        self,
        key: str,
        value: bytes,
        session: BackendSession | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> tuple[Record, Listing | None]:
        """See `Backend.create_and_list`; one exchange when the record is a session's."""
        if session is None:
            return super().create_and_list(key, value, None, timeout_s)
        until_s = self._clock.now_s() + timeout_s
        own = self._sessions.adopt(session)
        directory, _, name = key.rpartition("/")
        path = self._layout.path(directory)
        likely = (name, *self._sessions.names_in(directory))
        reads = children_reads(path, likely)
        record, reply = self._create(key, value, own, reads, timeout_s)
        if reply is None:
            return record, None
        try:
            children = children_read(own.link, reply, path, likely, until_s)
        except StoreUnavailableError:
            return record, None
        return record, _listing(directory, children, Revision(reply.zxid))

    def update(
        self, key: str, value: bytes, expected: Revision, timeout_s: float = CALL_TIMEOUT_S
    ) -> Record:
        """See `Backend.update`."""
        applied = self._apply([Unmodified(key, expected)], [Update(key, value)], timeout_s)
        before = applied.record_before(key)
        return replace(before, value=value, modified=applied.revision)

    def transact(
        self,
        checks: Sequence[Check],
        changes: Sequence[Change],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Revision:
        """See `Backend.transact`. All created ephemeral records must be of one session."""
        return self._apply(checks, changes, timeout_s).revision

    def wait_for_change(self, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`."""
        self._home.check()
        check_key(path)
        return self._watcher.wait(self._link, self._layout.path(path), after, timeout_s)

    def wait_and_list(
        self, path: str, after: Revision, directory: str, timeout_s: float
    ) -> Listing | None:
        """See `Backend.wait_and_list`; the read is sent by the thread that hears of the change."""
        self._home.check()
        check_key(path)
        check_key(directory)
        until_s = self._clock.now_s() + max(timeout_s, LIST_S_MIN)
        likely = self._sessions.names_in(directory)
        above = self._layout.path(directory)
        reads = children_reads(above, likely)
        try:
            reply = self._watcher.wait_and_read(
                self._link, self._layout.path(path), after, reads, timeout_s
            )
            if reply is None:
                return None
            if reply.zxid >= after:
                children = children_read(self._link, reply, above, likely, until_s)
                return _listing(directory, children, Revision(reply.zxid))
        except StoreUnavailableError:
            if not self._link.is_usable:
                raise
        # The server is behind what the caller has seen, or the connection broke meanwhile.
        return self.list(directory, max(LIST_S_MIN, until_s - self._clock.now_s()))

    def close(self) -> None:
        """See `Backend.close`."""
        self._home.check()
        self._link.close(CLOSE_TIMEOUT_S)
        self._sessions.leave()

    def _create(
        self,
        key: str,
        value: bytes,
        own: ZookeeperSession,
        reads: Sequence[Operation],
        timeout_s: float,
    ) -> tuple[Record, Reply | None]:
        """Add a record of a session, and what `reads` answered right after, if they did."""
        until_s = self._clock.now_s() + timeout_s
        before = own.link.last_zxid
        try:
            applied = self._apply([], [Create(key, value, own.id)], timeout_s, reads)
        except OutcomeUnknownError as error:
            # Once its session is heard again, no earlier request of it is on the way.
            own.renew(until_s - self._clock.now_s())
            record = self.get(key, until_s - self._clock.now_s())
            if record is None or record.session_id != own.id or record.created <= before:
                raise StoreUnavailableError(f"{key!r} was not created: {error}") from error
            return record, None
        revision = applied.revision
        return Record(key, value, revision, revision, own.id), applied.read

    def _children(self, directory: str, until_s: float) -> tuple[dict[str, Node] | None, Revision]:
        own = self._sessions.names_in(directory)
        return read_children(self._link, self._layout.path(directory), own, until_s)

    def _apply(
        self,
        checks: Sequence[Check],
        changes: Sequence[Change],
        timeout_s: float,
        reads: Sequence[Operation] = (),
    ) -> Applied:
        self._home.check()
        check_operations(checks, changes)
        until_s = self._clock.now_s() + timeout_s
        creator = self._sessions.creator(changes)
        deleter = next(filter(None, map(self._sessions.owner, changes)), None)
        session = creator or deleter
        link = self._link if session is None else session.link
        created = {each.key for each in changes if isinstance(each, Create) and each.session_id}
        if creator is not None:
            creator.keys |= created
        try:
            applied = self._writer.apply(link, checks, changes, self._sessions.owns, until_s, reads)
        except OutcomeUnknownError:
            raise
        except LockError:
            if creator is not None:
                creator.keys -= created
            raise
        for change in changes:
            owner = self._sessions.owner(change)
            if owner is not None:
                owner.keys.discard(change.key)
        return applied


def _listing(directory: str, nodes: dict[str, Node] | None, revision: Revision) -> Listing:
    records = [
        node.record(f"{directory}/{name}")
        for name, node in (nodes or {}).items()
        if not node.is_directory
    ]
    records.sort(key=lambda record: (record.created, record.key))
    return Listing(tuple(records), revision)
