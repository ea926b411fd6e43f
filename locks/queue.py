"""The queue of a mutex or read/write lock as others see it: who holds, who waits, and an end to it.

For commands and administrators; holding a lock needs none of this.
"""

from dataclasses import dataclass

from pliska.locks.backends.base import Backend, Delete, Existing, Record
from pliska.locks.claim import Claim
from pliska.locks.errors import ConflictError
from pliska.locks.fencing import FencingToken
from pliska.locks.name import check_name
from pliska.locks.queued_lock import QUEUE, queue_directory
from pliska.locks.turn import Enter, of_record

_LOCKS = "locks"


@dataclass(frozen=True, slots=True)
class Contending:
    """One who holds a lock or waits for it.

    Attributes:
        token: The fencing token of what it holds, or will hold.
        owner: Who it is, in its own words; empty when it did not say.
        is_shared: Whether it goes together with other readers.
        is_holding: Whether it holds now; else it waits.
        session_id: The session with whose end it leaves.
    """

    token: FencingToken
    owner: str
    is_shared: bool
    is_holding: bool
    session_id: str | None


def lock_names(backend: Backend) -> tuple[str, ...]:
    """The names of the locks that somebody holds or waits for, sorted."""
    return tuple(name for name in _names_below(backend, "") if lock_queue(backend, name))


def lock_queue(backend: Backend, name: str) -> tuple[Contending, ...]:
    """All who hold the lock or wait for it, in the order in which they came.

    Raises:
        LockUsageError: The name is not allowed.
    """
    check_name(name)
    records = backend.list(queue_directory(name)).records
    return tuple(
        _contending(record, is_holding=isinstance(of_record(records, position), Enter))
        for position, record in enumerate(records)
    )


def break_lock(
    backend: Backend, name: str, token: FencingToken | None = None
) -> tuple[Contending, ...]:
    """Take the lock away from those who hold it, by force.

    A holder who is connected knows within a second; until then it may act
    beside the next one. What it guards is safe if it checks fencing tokens.

    Args:
        backend: The store.
        name: The lock.
        token: Take it away from the holder with this token only.

    Returns:
        Those it was taken from; none when nobody held it.

    Raises:
        LockUsageError: The name is not allowed.
        OutcomeUnknownError: It may have happened; asking again with the token is safe.
    """
    check_name(name)
    records = backend.list(queue_directory(name)).records
    broken = []
    for position, record in enumerate(records):
        is_meant = token is None or FencingToken(record.created) == token
        if is_meant and isinstance(of_record(records, position), Enter):
            try:
                backend.transact([Existing(record.key, record.created)], [Delete(record.key)])
            except ConflictError:
                continue  # it left by itself meanwhile
            broken.append(_contending(record, is_holding=True))
    return tuple(broken)


def _names_below(backend: Backend, prefix: str) -> list[str]:
    names = []
    for segment in backend.directories(f"{_LOCKS}/{prefix}".rstrip("/")):
        if segment == QUEUE:
            names.append(prefix.rstrip("/"))
        else:
            names += _names_below(backend, f"{prefix}{segment}/")
    return sorted(names)


def _contending(record: Record, *, is_holding: bool) -> Contending:
    claim = Claim.from_bytes(record.value)
    return Contending(
        FencingToken(record.created), claim.owner, claim.is_shared, is_holding, record.session_id
    )
