"""Mutual exclusion between threads, processes and, where the store allows, machines."""

from pliska.locks.claim import Claim, this_process
from pliska.locks.owner import Holdings
from pliska.locks.queued_lock import ReentrantLock, queue_directory
from pliska.locks.session import Session
from pliska.locks.turn import exclusive


class Mutex(ReentrantLock):
    """A fair lock: whoever came first gets it first.

    Re-entrant for each thread, or task of asyncio, that uses the same `Mutex`
    object: n acquires need n releases, and a loss voids all levels. Other
    threads, and other objects of the same name, wait. A `ReadWriteLock` of the
    same name is the same lock, and this its writing side.
    """

    def __init__(self, session: Session, name: str) -> None:
        """Name the lock; nothing happens in the store yet.

        Raises:
            LockUsageError: The name is not allowed.
        """
        claim = Claim(this_process())
        super().__init__(session, name, queue_directory(name), claim, exclusive, Holdings())
