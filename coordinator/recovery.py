"""From the commit record in the store to exactly the state that it names.

The record is the truth; checkpoints and log only help to get there: the newest
checkpoint on its chain that works, then the log up to it, each step compared
with its record. Without a way there, the error says what is missing, and the
coordinator must not lead. Called before a coordinator leads and by a cold standby.
"""

from dataclasses import dataclass

from pliska.coordinator.checkpoint import CheckpointStore
from pliska.coordinator.commit import Commit, break_in_chain
from pliska.coordinator.errors import (
    CoordinatorError,
    ForkedChainError,
    MissingObjectError,
    RecoveryError,
)
from pliska.coordinator.model import TrainingModel
from pliska.coordinator.storage import Storage
from pliska.coordinator.update_log import UpdateLog
from pliska.coordinator.wire.job import Job


@dataclass(frozen=True, slots=True)
class Recovered:
    """A model at the committed state, and how it got there.

    Attributes:
        model: Its state digest is the head's.
        head: The newest commit; None where no round is committed yet.
        start: Version of the checkpoint it began with; 0 for the job's first parameters.
        skipped: Why newer checkpoints on the chain were not used.
    """

    model: TrainingModel
    head: Commit | None
    start: int
    skipped: tuple[str, ...]

    @property
    def version(self) -> int:
        """The committed model version, 0 before the first round."""
        return self.head.record.version if self.head else 0


def recover(job: Job, head: Commit | None, storage: Storage) -> Recovered:
    """Rebuild the committed state.

    Args:
        job: The job; its model factory is called.
        head: The newest commit, verified, from the store; None where the store
            has none.
        storage: Holds checkpoints and log.

    Raises:
        RecoveryError: No usable checkpoint and log lead to the head; the
            message says what is missing or wrong.
        ForkedChainError: The log's records do not form one chain.
        JobFileError: The model's factory fails.
    """
    if head is None:
        return Recovered(TrainingModel.build(job), None, 0, ())
    return _Recovery(job, head, storage).run()


class _Recovery:
    """Walks the chain back from the head until a start is found from which replay succeeds."""

    def __init__(self, job: Job, head: Commit, storage: Storage) -> None:
        self._job = job
        self._head = head
        self._log = UpdateLog(storage, job.name)
        self._checkpoints = CheckpointStore(storage, job.name)
        self._places = frozenset(self._checkpoints.places())
        self._skipped: list[str] = []

    def run(self) -> Recovered:
        version, digest = self._head.record.version, self._head.digest
        following: list[Commit] = []  # newest first
        while True:
            model = self._start(version, digest, following)
            if model is not None:
                return Recovered(model, self._head, version, tuple(self._skipped))
            if version == 0:
                raise self._failed("replaying the whole log fails")
            commit = self._commit(version, digest)
            if following:
                self._require_chain(commit, following[-1])
            following.append(commit)
            version, digest = version - 1, commit.record.previous
            if version == 0:
                self._require_chain(None, commit)

    def _start(self, version: int, digest: bytes, following: list[Commit]) -> TrainingModel | None:
        """Begin at this version and replay what follows; None where that is not possible."""
        place = self._checkpoints.place(version, digest)
        if place not in self._places and version > 0:
            return None
        model = TrainingModel.build(self._job)
        try:
            if place in self._places:
                model.restore_state(self._checkpoints.read(place)[1])
            self._replay(model, following)
        except CoordinatorError as error:
            self._skipped.append(f"from version {version}: {error}")
            return None
        return model

    def _replay(self, model: TrainingModel, following: list[Commit]) -> None:
        if not following:
            _require_state(model, self._head)
        elif model.parameters_digest() != following[-1].record.base_digest:
            raise RecoveryError(
                f"version {following[-1].record.version} was made from other parameters: has the "
                "model's code, its seed or torch changed since the job began?"
            )
        for commit in reversed(following):
            model.learning_rate = commit.record.learning_rate
            model.apply(self._log.read(commit.record.version, commit.digest).aggregate)
            _require_state(model, commit)

    def _commit(self, version: int, digest: bytes) -> Commit:
        try:
            return self._log.read(version, digest).commit
        except MissingObjectError as error:
            raise self._failed(f"the log entry of version {version} is missing") from error
        except CoordinatorError as error:
            raise self._failed(f"the log entry of version {version}: {error}") from error

    def _require_chain(self, previous: Commit | None, commit: Commit) -> None:
        broken = break_in_chain(previous, commit.record)
        if broken is not None:
            raise ForkedChainError(f"the log of {self._job.name} is not one chain: {broken}")

    def _failed(self, reason: str) -> RecoveryError:
        tried = "; ".join(self._skipped) or "no checkpoint was found on the way"
        return RecoveryError(
            f"job {self._job.name}: cannot rebuild version {self._head.record.version}: {reason}; "
            f"{tried}; fetch what is missing from another coordinator's storage and start again"
        )


def _require_state(model: TrainingModel, commit: Commit) -> None:
    if model.state_digest() != commit.record.state_digest:
        raise RecoveryError(
            f"the state of version {commit.record.version} is not the one that was committed"
        )
