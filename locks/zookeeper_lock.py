"""A lock that ZooKeeper's other clients take turns for: kazoo's `Lock`, Curator's mutex.

They queue as sequential nodes below one path and go by the numbers in the
nodes' names, which grow in the order of creation, as our tokens do. So this is
`Mutex` with names that they understand; theirs are in our way and ours in
theirs.
"""

import uuid
from enum import StrEnum

from pliska.locks.backends.numbered_records import NumberedRecords, NumberingBackend
from pliska.locks.claim import Claim, this_process
from pliska.locks.contender import STORE_CALL_S_MIN, Contender
from pliska.locks.errors import LockUsageError
from pliska.locks.queued_lock import QueuedLock
from pliska.locks.session import Session
from pliska.locks.turn import exclusive


class LockStyle(StrEnum):
    """Whose names the nodes get."""

    KAZOO = "kazoo"
    """`<32 hex digits>__lock__<number>`, as kazoo's `Lock` has them."""
    CURATOR = "curator"
    """`_c_<uuid>-lock-<number>`, as Curator's `InterProcessMutex` has them; a kazoo `Lock`
    respects these if it was made with `extra_lock_patterns=["-lock-"]`."""


class ZookeeperLock(QueuedLock):
    """The lock that kazoo or Curator know under a path. Not re-entrant."""

    def __init__(self, session: Session, path: str, style: str = LockStyle.KAZOO) -> None:
        """Name the lock; nothing happens in the store yet.

        Args:
            session: Whose end frees the lock.
            path: Below the path of the store's address.
            style: A `LockStyle`.

        Raises:
            LockUsageError: The store is not ZooKeeper, or path or style are not allowed.
        """
        if not isinstance(session.backend, NumberingBackend):
            raise LockUsageError(f"{session.backend.address} is no ZooKeeper: use Mutex there")
        if style not in set(LockStyle):
            raise LockUsageError(f"no lock style {style!r}: there are {', '.join(LockStyle)}")
        super().__init__(session, path, path, Claim(this_process()), exclusive)
        self._records = session.backend.numbered_records
        self._style = LockStyle(style)

    def _contender(self) -> Contender:
        guid = uuid.uuid4()
        is_kazoo = self._style is LockStyle.KAZOO
        prefix = f"{guid.hex}__lock__" if is_kazoo else f"_c_{guid}-lock-"
        return _NumberedContender(self._session, self.name, prefix, self._records)


class _NumberedContender(Contender):
    """A place in a queue whose key the store completes with a number."""

    def __init__(
        self, session: Session, directory: str, prefix: str, records: NumberedRecords
    ) -> None:
        super().__init__(session, directory, this_process().encode(), exclusive)
        self._prefix = prefix
        self._records = records

    def _enter(self, until_s: float | None) -> None:
        self.session.check()
        self._record = self._records.create(
            self._directory,
            self._prefix,
            self._value,
            self.session.backend_session,
            self._call_timeout_s(until_s),
        )
        self.key = self._record.key

    def _withdraw(self) -> None:
        with self._lock:
            self._levels = 0
        self.session.release(self)
        # By the prefix: after a lost answer the number is not known.
        self.session.give_back(
            lambda timeout_s: self._records.delete(
                self._directory, self._prefix, self.session.backend_session, timeout_s
            ),
            STORE_CALL_S_MIN,
        )
