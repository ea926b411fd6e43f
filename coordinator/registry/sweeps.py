"""The agreement between who registers and who removes files.

A file that no version refers to may be removed, but a registration takes a file
that is there for its own: in between, the file must not go. So removing is
announced in one record of the store, by compare-and-set, and a registration is
completed only in a transaction that finds the record as it was, at rest, before
it looked at its first file. Else it looks again. A sweeper that died is
announced until its time is over, and then put to rest by whoever comes next.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pliska.coordinator.registry.document import (
    canonical_bytes,
    moment,
    read_document,
    timestamp,
)
from pliska.coordinator.registry.errors import RegistryConflictError
from pliska.coordinator.registry.keys import Keys
from pliska.locks import Absent, Backend, Check, ConflictError, Record, Unmodified

SWEEP_RECORD_BYTES_MAX = 16 * 1024
ANNOUNCED_FOR = timedelta(seconds=60)
"""How long one announcement holds; a sweep that takes longer renews it."""
MARGIN = timedelta(seconds=20)
"""What is left of an announcement when a sweeper renews it, or stops."""
PATIENCE_S = 120.0
"""How long a registration waits for a sweep to end."""
LOOK_S = 1.0
"""How often it looks whether the sweeper's time is over."""
ATTEMPTS_MAX = 20

_FORMAT = "pliska-sweep-1"


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """What the record says.

    Attributes:
        sweeper: Who removes files; empty at rest.
        until: When the announcement is over; None at rest.
    """

    sweeper: str = ""
    until: str | None = None

    def is_under_way(self, now: datetime) -> bool:
        """Whether files may be removed now."""
        return self.until is not None and now < moment(self.until)

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return canonical_bytes({"format": _FORMAT, "sweeper": self.sweeper, "until": self.until})

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "SweepRecord":
        """Read the stored form. Raises `IntegrityError` where it is none."""
        document = read_document(content, SWEEP_RECORD_BYTES_MAX, what)
        document.check_format(_FORMAT)
        record = cls(document.text("sweeper"), document.optional_time("until"))
        document.finish()
        return record


class Sweeps:
    """The sweeps of one namespace."""

    def __init__(self, backend: Backend, namespace: str, now: Callable[[], datetime]) -> None:
        self.now = now
        self._backend = backend
        self._key = Keys(namespace).sweep

    def rest(self) -> Check:
        """Wait until nobody removes files.

        Returns:
            The check that nobody began to since.

        Raises:
            RegistryConflictError: A sweep takes too long.
        """
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            found, record = self._read()
            if record.until is None:
                return self._unchanged(found)
            if found is None or not record.is_under_way(self.now()):
                self.replace(found, SweepRecord())  # its sweeper died
            else:
                self._backend.wait_for_change(self._key, found.modified, LOOK_S)
        raise RegistryConflictError("files are being removed; try again when that has ended")

    def require_none(self) -> Record | None:
        """Return the record as it is while nobody removes files.

        Raises:
            RegistryConflictError: Somebody does.
        """
        found, record = self._read()
        if record.is_under_way(self.now()):
            raise RegistryConflictError(
                f"{record.sweeper} removes files until {record.until}; try again after that"
            )
        return found

    def begin(self, sweeper: str) -> "Announcement":
        """Announce a sweep.

        Raises:
            RegistryConflictError: Somebody else's is under way.
        """
        for _ in range(ATTEMPTS_MAX):
            found = self.require_none()
            ours = SweepRecord(sweeper, timestamp(self.now() + ANNOUNCED_FOR))
            announced = self.replace(found, ours)
            if announced is not None:
                return Announcement(self, announced, ours)
        raise RegistryConflictError("others keep removing files; try again")

    def replace(self, found: Record | None, record: SweepRecord) -> Record | None:
        """Compare and set; None where somebody else was first."""
        try:
            if found is None:
                return self._backend.create(self._key, record.to_bytes())
            return self._backend.update(self._key, record.to_bytes(), found.modified)
        except ConflictError:
            return None

    def is_stored(self, found: Record) -> bool:
        """Whether the record was not changed since it was read."""
        present = self._backend.get(self._key)
        return present is not None and present.modified == found.modified

    def _read(self) -> tuple[Record | None, SweepRecord]:
        found = self._backend.get(self._key)
        if found is None:
            return None, SweepRecord()
        return found, SweepRecord.from_bytes(found.value, found.key)

    def _unchanged(self, found: Record | None) -> Check:
        return Absent(self._key) if found is None else Unmodified(self._key, found.modified)


class Announcement:
    """A sweep that was announced. Files may be removed while `renew` does not raise."""

    def __init__(self, sweeps: Sweeps, stored: Record, record: SweepRecord) -> None:
        self.number = stored.modified
        """No other sweep of the namespace ever has the same."""
        self.began = sweeps.now()
        self._sweeps = sweeps
        self._stored = stored
        self._record = record

    def renew(self) -> None:
        """Ask before each file whether it may be removed; announce for longer where needed.

        Raises:
            RegistryConflictError: The time is over, and others may rely on that.
        """
        now = self._sweeps.now()
        if self._record.is_under_way(now + MARGIN):
            return
        if self._record.is_under_way(now):
            self._set(SweepRecord(self._record.sweeper, timestamp(now + ANNOUNCED_FOR)))
        else:
            raise RegistryConflictError("removing files took too long; begin again")

    def check(self) -> None:
        """Make sure that nobody has put the record to rest, whatever the clocks say.

        Raises:
            RegistryConflictError: Somebody has, and may rely on any file that is there.
        """
        if not self._sweeps.is_stored(self._stored):
            raise RegistryConflictError("somebody else ended this sweep; begin again")

    def end(self) -> None:
        """Put the record to rest, so that registrations go on at once."""
        self._set(SweepRecord())

    def _set(self, record: SweepRecord) -> None:
        stored = self._sweeps.replace(self._stored, record)
        if stored is None:
            raise RegistryConflictError("somebody else ended this sweep; begin again")
        self._stored, self._record = stored, record
