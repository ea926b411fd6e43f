"""The horizon of a job: the version up to which no aggregate is needed, in the store.

It moves in a transaction that checks the leadership, and only forward: a leader
that was paused past its session decides nothing any more, and what it decided
before stays right. Read by every coordinator before it clears its own storage.
"""

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.errors import DamagedStateError
from pliska.locks import (
    Absent,
    Check,
    ConflictError,
    Create,
    GrantLostError,
    Leadership,
    Record,
    Unmodified,
    Update,
)

HORIZON_BYTES_MAX = 20


def read_horizon(directory: JobDirectory) -> int:
    """Return the horizon; 0 where none was ever set.

    Raises:
        DamagedStateError: The record holds something else.
        StoreError: The store does not answer.
    """
    return _version(directory.backend.get(directory.horizon_key))


def raise_horizon(directory: JobDirectory, leadership: Leadership, version: int) -> int:
    """Move the horizon forward; return where it stands now, which may be further on.

    Raises:
        GrantLostError: This coordinator no longer leads; nothing was changed.
        DamagedStateError: The record holds something else.
        StoreError: The store does not answer.
    """
    backend, key = directory.backend, directory.horizon_key
    leadership.check()
    before = backend.get(key)
    reached = _version(before)
    if version <= reached:
        return reached
    unchanged: Check = Absent(key) if before is None else Unmodified(key, before.modified)
    value = b"%d" % version
    change = Create(key, value) if before is None else Update(key, value)
    try:
        backend.transact([leadership.guard(), unchanged], [change])
    except ConflictError as error:
        raise GrantLostError(
            f"the horizon was not moved to version {version}: another coordinator leads the job"
        ) from error
    return version


def _version(record: Record | None) -> int:
    if record is None:
        return 0
    value = record.value
    if len(value) > HORIZON_BYTES_MAX or not value.isdigit():
        raise DamagedStateError(f"{record.key} does not hold a version: {value[:32]!r}")
    return int(value)
