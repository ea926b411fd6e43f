"""Removing a file that others may take for theirs at the same moment.

A storage knows nothing of announced sweeps (see `sweeps`). A sweeper that is paused
right before it removes a file may wake when its time is over and a registration relies
on that file. So it moves the file away first, to a name that is the sweep's own, and
then asks the store whether the sweep still stands. If so, whoever looks from now on
finds the place empty, and the file goes. If not, it is put back.

What a crash leaves moved away is copied back by the next collection where its place is
empty, and goes after a week: a bucket moves in two steps, and who is paused between them
may need it when he wakes. Used by `collection` and `packing`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pliska.coordinator.registry.sweeps import Announcement
from pliska.coordinator.storage.storage import Storage

KEPT_FOR = timedelta(days=7)
"""What was moved away and left there stays so long, in case that its sweeper still wakes."""

_REMOVED = "removed"
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A file that a sweeper moved away.

    Attributes:
        name: Where it is.
        place: Where it was.
        at: When its sweep began.
    """

    name: str
    place: str
    at: datetime

    def is_forgotten(self, now: datetime) -> bool:
        """Whether it may go, whatever became of its sweeper."""
        return now - self.at >= KEPT_FOR


def moved_prefix(namespace: str) -> str:
    """Return what the names of moved files begin with."""
    return f"{namespace}/{_REMOVED}/"


def moved_file(name: str) -> MovedFile | None:
    """Read the name of a moved file; None where it is no such name."""
    try:
        namespace, removed, sweep, place = name.split("/", 3)
        at = datetime.strptime(sweep.partition("-")[0], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return MovedFile(name, f"{namespace}/{place}", at) if removed == _REMOVED else None


def remove(sweep: Announcement, storage: Storage, name: str) -> bool:
    """Remove a file for as long as the sweep stands; False where there is none.

    Raises:
        RegistryConflictError: Somebody has ended the sweep; the file is where it was.
        StoreError: Nobody knows whether somebody has; the file is where it was.
    """
    namespace, _, place = name.partition("/")
    began = sweep.began.astimezone(UTC).strftime(_TIME)
    moved = f"{moved_prefix(namespace)}{began}-{sweep.number}/{place}"
    if not storage.move(name, moved):
        return False
    try:
        sweep.check()
    except BaseException:
        storage.move(moved, name)
        storage.delete(moved)  # where somebody has put the same there meanwhile
        raise
    return storage.delete(moved)
