"""Where else a coordinator looks for what its storage lacks, and the log that is completed so.

Called by `recovery`; `donors` are the sources of a running coordinator. What is fetched
is checked by its digest by whoever fetches it, and kept.
"""

from collections.abc import Collection
from typing import Protocol

from pliska.coordinator.errors import CoordinatorError, MissingObjectError, RecoveryError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.log_entry import LogEntry, LogHead
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.following import Place
from pliska.coordinator.training.training_state import TrainingState


class Sources(Protocol):
    """The other coordinators of a job. What they give is checked by who asks."""

    def head(self, place: Place) -> LogHead:
        """Fetch record and annex of a version. Raises `MissingObjectError` where nobody has it."""

    def entry(self, head: LogHead, dimension: int) -> LogEntry:
        """Fetch the aggregate to a head. Raises `MissingObjectError` where nobody has it."""

    def checkpoints(self) -> Collection[Place]:
        """List the checkpoints that others have."""

    def state(self, commit: Commit) -> TrainingState:
        """Fetch the state after a commit, one of `checkpoints`.

        Raises:
            MissingObjectError: Nobody has it any more.
        """


class CompletedLog:
    """A log in one storage that gets what it lacks from others, when it is asked for."""

    def __init__(self, log: UpdateLog, sources: Sources | None) -> None:
        """Complete `log` from `sources`; with None it is read as it is."""
        self._log = log
        self._sources = sources

    def head(self, place: Place) -> LogHead:
        """Read record and annex of a version, or fetch them and keep them.

        Raises:
            RecoveryError: They are nowhere, or damaged everywhere.
            StorageError: What was fetched cannot be stored.
        """
        try:
            return self._log.head(place.version, place.digest)
        except CoordinatorError as lacking:
            is_missing = isinstance(lacking, MissingObjectError)
            problem = "is missing" if is_missing else f"cannot be read: {lacking}"
            reason = f"the log entry of version {place.version} {problem}"
            if self._sources is None:
                raise RecoveryError(reason) from lacking
            try:
                found = self._sources.head(place)
            except CoordinatorError as error:
                raise RecoveryError(f"{reason}; {error}") from error
        self._log.write_head(found)
        return found

    def entry(self, head: LogHead, dimension: int) -> LogEntry:
        """Read a log entry, or fetch its aggregate and keep it.

        Args:
            head: Of the entry.
            dimension: Numbers in the aggregate.

        Raises:
            CoordinatorError: It is nowhere, or what was fetched cannot be stored.
        """
        commit = head.commit
        try:
            return self._log.read(commit.record.version, commit.digest)
        except CoordinatorError as lacking:
            if self._sources is None:
                raise
            try:
                entry = self._sources.entry(head, dimension)
            except CoordinatorError as error:
                raise RecoveryError(f"{lacking}; {error}") from error
        self._log.write(entry.commit, entry.aggregate, entry.annex)
        return entry
