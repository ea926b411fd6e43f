"""Fetches the records of old rounds that a coordinator lacks because it joined late.

The state of a job does not need them; its history does: with them on every
coordinator, no record of a committed round is lost with a machine. In small
steps, beside the following of new rounds. Blocks; called in threads, one step
at a time.
"""

import logging

from pliska.coordinator.errors import DamagedStateError, MissingObjectError
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.following import Place
from pliska.coordinator.replication.recovery import ORIGIN
from pliska.coordinator.replication.sources import Sources

log = logging.getLogger(__name__)

STEP_HEADS = 64
"""Records that one step looks at."""


class Backfill:
    """Walks back from a committed version to the first one, once."""

    def __init__(self, update_log: UpdateLog, sources: Sources, start: Place) -> None:
        """Begin at a committed version whose record is here."""
        self._log = update_log
        self._sources = sources
        self._place = start
        self._is_given_up = False

    @property
    def is_done(self) -> bool:
        """Whether all is here, or nobody has what is missing."""
        return self._is_given_up or self._place == ORIGIN

    def step(self) -> None:
        """Look at some records, and fetch those that are missing.

        Raises:
            StorageError: The disk failed or is full.
        """
        for _ in range(STEP_HEADS):
            if self.is_done:
                return
            try:
                head = self._log.head(self._place.version, self._place.digest)
            except (MissingObjectError, DamagedStateError):
                try:
                    head = self._sources.head(self._place)
                except (MissingObjectError, DamagedStateError) as error:
                    log.warning("version=%d reason=%s", self._place.version, error)
                    self._is_given_up = True
                    return
                self._log.write_head(head)
            self._place = Place(self._place.version - 1, head.commit.record.previous)
