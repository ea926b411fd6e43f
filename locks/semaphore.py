"""At most N at a time, in the order in which they came.

Each lease is an ephemeral record that says it is inside, so the store itself
takes it back with its session. Only the first who waits may go in, in one
transaction that fails unless the size is still the one it counted against:
at no revision are there more leases than the size allowed when the last of
them was given.
"""

import contextlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliska.locks.backends.base import Backend, Record, Unmodified, Update
from pliska.locks.claim import Claim, this_process
from pliska.locks.errors import ConflictError, LockUsageError, StoreFormatError
from pliska.locks.grant import Grant
from pliska.locks.name import check_name
from pliska.locks.queued_lock import QueuedLock
from pliska.locks.session import Session
from pliska.locks.turn import Enter, Turn, Wait

SIZE_MAX = 1_000
"""Each who goes in reads the records of all who are inside."""


@dataclass(frozen=True, slots=True)
class SemaphoreState:
    """A semaphore as it was seen.

    Attributes:
        size: How many may be inside.
        inside: Who is inside, oldest first; more than `size` for as long as it drains.
        waiting: Who waits, in the order in which they will come in.
    """

    size: int
    inside: tuple[Claim, ...]
    waiting: tuple[Claim, ...]


class Semaphore(QueuedLock):
    """Up to `size` leases at a time. Each acquire is one lease; nothing is re-entrant.

    The size lives in the store. The argument is what a semaphore begins with
    that nobody made before; later only `resize_semaphore` changes it.
    """

    def __init__(self, session: Session, name: str, size: int) -> None:
        """Name the semaphore; nothing happens in the store yet.

        Raises:
            LockUsageError: The name is not allowed, or the size not 1 to `SIZE_MAX`.
        """
        _check_size(size)
        claim = Claim(this_process(), is_shared=True)
        super().__init__(session, name, _directory(name), claim, _turn)
        self._size = size
        self._has_size = False

    def acquire(
        self, timeout_s: float | None = None, cancelled: threading.Event | None = None
    ) -> Grant:
        """See `QueuedLock.acquire`."""
        self._ensure_size()
        return super().acquire(timeout_s, cancelled)

    def try_acquire(self) -> Grant | None:
        """See `QueuedLock.try_acquire`."""
        self._ensure_size()
        return super().try_acquire()

    def _ensure_size(self) -> None:
        self._session.check()
        backend, key = self._session.backend, _size_key(self.name)
        if not self._has_size and backend.get(key) is None:
            with contextlib.suppress(ConflictError):  # somebody else made it, and theirs holds
                backend.create(key, _to_json(self._size))
        self._has_size = True


def semaphore_state(backend: Backend, name: str) -> SemaphoreState | None:
    """Who is inside and who waits; None when nobody made this semaphore.

    Raises:
        StoreFormatError: Its size record is not ours.
    """
    check_name(name)
    records = backend.list(_directory(name)).records
    size_record = _size_record(records)
    if size_record is None:
        return None
    claims = [Claim.from_bytes(each.value) for each in records if each is not size_record]
    return SemaphoreState(
        _size(size_record),
        tuple(claim for claim in claims if claim.is_inside),
        tuple(claim for claim in claims if not claim.is_inside),
    )


def resize_semaphore(backend: Backend, name: str, size: int) -> int | None:
    """Change how many may be inside, for everybody and at once.

    After a larger size those who wait come in. After a smaller one nobody is
    put out; nobody comes in until enough have left.

    Returns:
        The size before, None when this made the semaphore.

    Raises:
        LockUsageError: The size is not 1 to `SIZE_MAX`.
        OutcomeUnknownError: It may have been changed; asking again is safe.
    """
    check_name(name)
    _check_size(size)
    while True:
        record = backend.get(_size_key(name))
        try:
            if record is None:
                backend.create(_size_key(name), _to_json(size))
                return None
            before = _size(record)
            backend.update(record.key, _to_json(size), record.modified)
        except ConflictError:
            continue  # somebody else changed it: look again
        return before


def _turn(records: Sequence[Record], position: int) -> Turn:
    size_record = _size_record(records)
    if size_record is None:
        raise StoreFormatError("the size of this semaphore was removed from the store")
    own = records[position] if position < len(records) else None
    own_claim = Claim("") if own is None else Claim.from_bytes(own.value)
    if own_claim.is_inside:
        return Enter()
    inside = 0
    waiting: Record | None = None
    for index, record in enumerate(records):
        if record is size_record or record is own:
            continue
        if Claim.from_bytes(record.value).is_inside:
            inside += 1
        elif index < position:
            waiting = record
    if waiting is not None:
        return Wait(waiting.key)
    if inside >= _size(size_record):
        return Wait(size_record.key.rpartition("/")[0])
    if own is None:
        return Enter()
    update = Update(own.key, replace(own_claim, is_inside=True).to_bytes())
    return Enter((Unmodified(size_record.key, size_record.modified),), (update,))


def _directory(name: str) -> str:
    return f"semaphores/{name}/leases"


def _size_key(name: str) -> str:
    return f"{_directory(name)}/size"


def _size_record(records: Sequence[Record]) -> Record | None:
    return next((record for record in records if record.key.endswith("/size")), None)


def _check_size(size: int) -> None:
    if not 1 <= size <= SIZE_MAX:
        raise LockUsageError(f"the size of a semaphore is 1 to {SIZE_MAX}, not {size}")


def _to_json(size: int) -> bytes:
    return json.dumps({"size": size}).encode()


def _size(record: Record) -> int:
    try:
        size = json.loads(record.value)["size"]
    except (ValueError, TypeError, KeyError, RecursionError):
        size = None
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= SIZE_MAX:
        raise StoreFormatError(
            f"{record.key!r} has no proper size: it was not written by a semaphore of Pliska"
        )
    return size
