"""Whether two coordinators share one storage: the leader leaves a mark, the standby looks for it.

A copy on a storage that is shared is no second copy. What coordinators say of
their storage does not count, nor what a cloned disk would repeat: the mark is a
new secret in each leadership, and the leader tells only its digest.
"""

import re
from hashlib import sha256

from pliska.coordinator.errors import MissingObjectError, ObjectTooLargeError
from pliska.coordinator.storage.storage import Storage

MARK_BYTES = 32

_NAME = re.compile(r"\d{20}")


def leave_mark(storage: Storage, job: str, epoch: int, secret: bytes) -> str:
    """Leave a leadership's mark, and remove those of earlier ones.

    Args:
        storage: The leader's.
        job: The job that it leads.
        epoch: Of the leadership.
        secret: `MARK_BYTES` that nobody can guess.

    Returns:
        The probe: what standbys are told.

    Raises:
        StorageError: The mark could not be stored.
    """
    folder = _folder(job)
    storage.write(_name(job, epoch), [secret])
    for name in storage.names(folder):
        number = name.removeprefix(folder)
        if _NAME.fullmatch(number) and int(number) < epoch:
            storage.delete(name)
    return sha256(secret).hexdigest()


def shares_storage(storage: Storage, job: str, epoch: int, probe: str) -> bool:
    """Say whether the mark that belongs to a probe lies in this storage.

    Raises:
        StorageError: The storage failed.
    """
    try:
        mark = storage.read(_name(job, epoch), MARK_BYTES)
    except (MissingObjectError, ObjectTooLargeError):
        return False
    return sha256(mark).hexdigest() == probe


def _folder(job: str) -> str:
    return f"jobs/{job}/leaders/"


def _name(job: str, epoch: int) -> str:
    return f"{_folder(job)}{epoch:020d}"
