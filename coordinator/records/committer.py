"""Moves the tip of a job's chain in the store: at most once, and only while this leader leads.

One transaction checks that the leadership still stands and that the tip before
is the one that this leader built on. A leader that was paused past its
session changes nothing. Blocks; called in a thread.
"""

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.wire.signing import Signer
from pliska.locks import (
    Absent,
    Check,
    ConflictError,
    Create,
    GrantLostError,
    Leadership,
    OutcomeUnknownError,
    Record,
    StoreUnavailableError,
    Unmodified,
    Update,
)

RETRY_S = 0.1
"""Pause between two tries while the store does not answer."""


class Committer:
    """Moves one job's tip from version to version."""

    def __init__(
        self,
        directory: JobDirectory,
        leadership: Leadership,
        current: Record | None,
        signer: Signer,
    ) -> None:
        """Take over where `current` stands.

        Args:
            directory: The job's place in the store.
            leadership: Fences every write.
            current: The tip as it was read after the leadership began; None
                where no round is committed.
            signer: This coordinator's key.
        """
        self._directory = directory
        self._leadership = leadership
        self._current = current
        self._signer = signer

    def commit(self, commit: Commit) -> None:
        """Let the tip name this commit, which is durable; on return the round is committed.

        While the store does not answer, it tries again for as long as the
        leadership can last.

        Raises:
            GrantLostError: This coordinator no longer leads; it must not
                publish the round. Another leader decides what is committed.
        """
        value = self._signer.sign(Tip.of(commit)).to_bytes()
        while True:
            self._leadership.check()
            try:
                if self._write(value) or self._holds(value):
                    return
            except (StoreUnavailableError, OutcomeUnknownError):
                self._leadership.lost.wait(RETRY_S)
            else:
                raise GrantLostError(
                    f"version {commit.record.version} was not committed: "
                    "another coordinator leads the job"
                )

    def _write(self, value: bytes) -> bool:
        """Replace the tip; False where another leader leads or another tip stands."""
        key = self._directory.commit_key
        before = self._current
        unchanged: Check = Absent(key) if before is None else Unmodified(key, before.modified)
        change = Create(key, value) if before is None else Update(key, value)
        checks = [self._leadership.guard(), unchanged]
        try:
            revision = self._directory.backend.transact(checks, [change])
        except ConflictError:
            return False
        created = revision if before is None else before.created
        self._current = Record(key, value, created, revision)
        return True

    def _holds(self, value: bytes) -> bool:
        """Whether the tip is ours after all: an answer may have been lost on its way."""
        current = self._directory.commit()
        if current is None or current.value != value:
            return False
        self._current = current
        return True
