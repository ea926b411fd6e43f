"""Many readers or one writer, in the order in which they came.

A reader waits only for writers that came before it, a writer for everybody;
neither overtakes, so no stream of readers starves a writer.
"""

from pliska.locks.claim import Claim, this_process
from pliska.locks.errors import NotHeldError, UpgradeRefusedError
from pliska.locks.grant import Grant
from pliska.locks.owner import Holdings
from pliska.locks.queued_lock import ReentrantLock, queue_directory
from pliska.locks.session import Session
from pliska.locks.turn import exclusive, shared


class ReadWriteLock:
    """A lock with a `read` and a `write` side; each has acquire, try_acquire and hold.

        lock = ReadWriteLock(session, "dataset")
        with lock.read.hold(timeout_s=5) as grant:
            ...

    Re-entrant for each thread, or task of asyncio, that uses the same object:
    who writes may also read, at the same grant and token. Who reads is refused
    to write, since two who tried would wait for each other for ever; who
    writes may `downgrade` to reading. A `Mutex` of the same name is a writer.
    """

    def __init__(self, session: Session, name: str) -> None:
        """Name the lock; nothing happens in the store yet.

        Raises:
            LockUsageError: The name is not allowed.
        """
        self.name = name
        holdings = Holdings()
        self.read = ReadSide(session, name, holdings)
        self.write = WriteSide(session, name, holdings)


class ReadSide(ReentrantLock):
    """Made by `ReadWriteLock`: holds it together with other readers."""

    def __init__(self, session: Session, name: str, holdings: Holdings) -> None:
        claim = Claim(this_process(), is_shared=True)
        super().__init__(session, name, queue_directory(name), claim, shared, holdings)


class WriteSide(ReentrantLock):
    """Made by `ReadWriteLock`: holds it alone."""

    def __init__(self, session: Session, name: str, holdings: Holdings) -> None:
        claim = Claim(this_process())
        super().__init__(session, name, queue_directory(name), claim, exclusive, holdings)

    def downgrade(self) -> None:
        """Go on reading what the caller holds for writing, at the same grant and token.

        Readers who wait just behind come in; a writer does not. The grant stays
        held throughout, but is one to read as soon as this is called.

        Raises:
            NotHeldError: The caller does not hold it.
            LockUsageError: It was acquired more than once: release the inner grants first.
            GrantLostError: It was lost.
            OutcomeUnknownError: It may have happened; asking again is safe.
        """
        held = self._holdings.mine()
        if held is None:
            raise NotHeldError(f"{self.name!r} is not held by the caller")
        held.weaken(Claim(this_process(), is_shared=True))

    def _again(self) -> Grant | None:
        held = self._holdings.mine()
        if held is not None and Claim.from_bytes(held.value).is_shared:
            raise UpgradeRefusedError(
                f"{self.name!r} is held for reading by the caller, who cannot wait for it to be "
                "free for writing: release it first, or ask to write from the start"
            )
        return super()._again()
