"""Sequential nodes, for locks that other clients of ZooKeeper take turns for."""

from collections.abc import Callable

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import Create2
from kazoo.protocol.serialization import Delete as DeleteNode

from pliska.locks.backends.base import CALL_TIMEOUT_S, BackendSession, Record, Revision
from pliska.locks.backends.keys import check_key
from pliska.locks.backends.zookeeper_plan import ANY_VERSION, Layout
from pliska.locks.backends.zookeeper_reads import read_children
from pliska.locks.backends.zookeeper_requests import EPHEMERAL_FLAG, SEQUENCE_FLAG, Created
from pliska.locks.backends.zookeeper_session import ZookeeperSession
from pliska.locks.backends.zookeeper_writes import ATTEMPTS_MAX, Writer
from pliska.locks.clock import SystemClock
from pliska.locks.errors import ConflictError

NUMBER_DIGITS = 10


class ZookeeperNumberedRecords:
    """See `NumberedRecords`."""

    def __init__(
        self, layout: Layout, writer: Writer, session: Callable[[str], ZookeeperSession]
    ) -> None:
        """Find sessions by their id with `session`."""
        self._layout = layout
        self._writer = writer
        self._session = session
        self._clock = SystemClock()

    def create(
        self,
        directory: str,
        prefix: str,
        value: bytes,
        session: BackendSession,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Record:
        """See `NumberedRecords.create`."""
        key = f"{directory}/{prefix}"
        check_key(key + "0" * NUMBER_DIGITS)
        own = self._session(session.id)
        until_s = self._clock.now_s() + timeout_s
        flags = EPHEMERAL_FLAG | SEQUENCE_FLAG
        create = Create2(self._layout.path(key), value, self._layout.acl, flags)
        for _ in range(ATTEMPTS_MAX):
            reply = own.link.transact([create], until_s)
            (result,) = reply.results
            if isinstance(result, Created):
                key = f"{directory}/{result.path.rpartition('/')[2]}"
                own.keys.add(key)
                revision = Revision(result.stat.czxid)
                return Record(key, value, revision, revision, own.id)
            if not isinstance(result, NoNodeError):
                raise own.link.failure(result)
            self._writer.make_directory(directory, until_s)
        raise ConflictError(f"the directory {directory!r} keeps being removed")

    def delete(
        self,
        directory: str,
        prefix: str,
        session: BackendSession,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> bool:
        """See `NumberedRecords.delete`."""
        own = self._session(session.id)
        until_s = self._clock.now_s() + timeout_s
        path = self._layout.path(directory)
        # On the session's own connection, behind a creation whose answer was lost.
        children, _ = read_children(own.link, path, (), until_s)
        names = [name for name in children or () if name.startswith(prefix)]
        for name in names:
            own.link.transact([DeleteNode(f"{path}/{name}", ANY_VERSION)], until_s)
            own.keys.discard(f"{directory}/{name}")
        return bool(names)
