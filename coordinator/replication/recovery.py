"""From the tip in the store to exactly the state that its record names.

The record is the truth; what is stored only helps to get there: the model that
a standby has in memory, the newest checkpoint on the record's chain that works,
then the log up to it, each step compared with its record. Where the chain was
rolled back, the way leads over the restored version. What this storage
lacks is asked of the other coordinators, checked by its digest, and kept.
Without a way there, the error says what is missing, and the coordinator must
not lead. Blocks; called in a thread by a standby, by a new leader and by audits.
"""

from dataclasses import dataclass
from functools import cached_property

from pliska.coordinator.errors import (
    CoordinatorError,
    ForkedChainError,
    RecoveryError,
)
from pliska.coordinator.records.archive import Archive
from pliska.coordinator.records.chain import break_in_chain, break_in_restoring
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.commit import GENESIS, Commit
from pliska.coordinator.records.log_entry import LogHead
from pliska.coordinator.records.replay import apply_entry, require_state
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.following import Place, origin_of, place_of, should_copy
from pliska.coordinator.replication.sources import CompletedLog, Sources
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.training_state import TrainingState
from pliska.coordinator.wire.job import Job


@dataclass(frozen=True, slots=True)
class Warm:
    """A model in memory, and the committed version that it is at. Given away once it is used."""

    model: TrainingModel
    place: Place


@dataclass(frozen=True, slots=True)
class Recovered:
    """A model at the committed state, and how it got there.

    Attributes:
        model: Its state digest is the head's.
        head: The newest commit; None where no round is committed yet.
        start: Version that it began with: of a model in memory or a checkpoint; 0
            for the job's first parameters.
        skipped: Why what looked like a better start was not used.
    """

    model: TrainingModel
    head: Commit | None
    start: int
    skipped: tuple[str, ...]

    @property
    def version(self) -> int:
        """The committed model version, 0 before the first round."""
        return self.head.record.version if self.head else 0


def committed(tip: Tip, storage: Storage, sources: Sources | None = None) -> Commit:
    """Find the commit record that the store names; its digest stands for its signature.

    Args:
        tip: From the store, verified.
        storage: Holds the log; gets what is fetched.
        sources: Where else to look.

    Raises:
        RecoveryError: It is in no log; the message says so.
        StorageError: What was fetched cannot be stored.
    """
    log = CompletedLog(UpdateLog(storage, tip.job), sources)
    try:
        return log.head(Place(tip.version, tip.digest)).commit
    except RecoveryError as error:
        raise RecoveryError(_unbuilt(tip.job, tip.version, str(error))) from error


def recover(
    job: Job,
    head: Commit | None,
    storage: Storage,
    sources: Sources | None = None,
    warm: Warm | None = None,
) -> Recovered:
    """Rebuild the committed state.

    Args:
        job: The job; its model factory is called.
        head: The newest commit, from `committed`; None where the store names none.
        storage: Holds checkpoints and log; gets what is fetched.
        sources: Where else to look.
        warm: A model to go on from, where it is on the chain.

    Raises:
        RecoveryError: No usable checkpoint and log lead to the head; the
            message says what is missing or wrong.
        ForkedChainError: The log's records do not form one chain.
        JobFileError: The model's factory fails.
        StorageError: What was fetched cannot be stored.
    """
    if head is None:
        is_new = warm is not None and warm.place == ORIGIN
        model = warm.model if warm is not None and is_new else TrainingModel.build(job)
        return Recovered(model, None, 0, ())
    return _Recovery(job, head, Archive(storage, job), sources, warm).run()


ORIGIN = Place(0, GENESIS)
"""Before the first round."""


class _Recovery:
    """Walks the chain back from the head until a start is found from which replay succeeds."""

    def __init__(
        self, job: Job, head: Commit, archive: Archive, sources: Sources | None, warm: Warm | None
    ) -> None:
        self._job = job
        self._head = head
        self._own_log = archive.log
        self._log = CompletedLog(archive.log, sources)
        self._checkpoints = archive.checkpoints
        self._sources = sources
        self._warm = warm
        self._skipped: list[str] = []

    def run(self) -> Recovered:
        """Go the cheapest way that works; a checkpoint of others is the last one."""
        try:
            return self._walk(must_copy=False)
        except RecoveryError:
            if not self._elsewhere:
                raise
            return self._walk(must_copy=True)

    def _walk(self, *, must_copy: bool) -> Recovered:
        place = place_of(self._head)
        following: list[LogHead] = []  # newest first
        while True:
            if place.version == 0:
                self._require_chain(None, following[-1].commit)
            model = self._start(place, must_copy)
            if model is not None and self._replay(model, place, following):
                if self._sources is not None:
                    self._head_of(place_of(self._head))  # who leads goes on from its annex
                return Recovered(model, self._head, place.version, tuple(self._skipped))
            if place == ORIGIN:
                raise self._failed("replaying the whole log fails")
            log_head = self._head_of(place)
            if following:
                self._require_chain(log_head.commit, following[-1].commit)
            following.append(log_head)
            place = origin_of(log_head.commit)

    def _start(self, place: Place, must_copy: bool) -> TrainingModel | None:
        """Return a model at this place; None where there is none."""
        warm, folder = self._warm, self._checkpoints.place(place.version, place.digest)
        if warm is not None and warm.place == place:
            self._warm = None  # it may be spoiled by what follows
            return warm.model
        if place == ORIGIN:
            return TrainingModel.build(self._job)
        try:
            if folder in self._places:
                return self._restored(self._checkpoints.read(folder)[1])
            if self._sources is not None and self._is_worth_copying(place, must_copy):
                return self._copied(self._sources, self._head_of(place).commit)
        except CoordinatorError as error:
            self._skip(place, error)
        return None

    def _replay(self, model: TrainingModel, place: Place, following: list[LogHead]) -> bool:
        """Take the steps that follow a start; False where that is not possible."""
        try:
            if not following:
                require_state(model, self._head)
            elif model.parameters_digest() != _start_digest(following[-1].commit):
                raise RecoveryError(
                    f"version {place.version + 1} was made from other parameters: has the "
                    "model's code, its seed or torch changed since the job began?"
                )
            for log_head in reversed(following):
                apply_entry(model, self._log.entry(log_head, model.dimension))
        except CoordinatorError as error:
            self._skip(place, error)
            return False
        return True

    def _restored(self, state: TrainingState) -> TrainingModel:
        model = TrainingModel.build(self._job)
        model.restore_state(state)
        return model

    def _is_worth_copying(self, place: Place, must_copy: bool) -> bool:
        own = [self._checkpoints.version_of(each) for each in self._places]
        starts = [*own, self._warm.place.version] if self._warm else own
        if not (must_copy or should_copy(place.version, starts, self._logged)):
            return False  # nobody is asked when little is missing, as in each round of a standby
        return place in self._elsewhere

    def _copied(self, sources: Sources, commit: Commit) -> TrainingModel:
        """Fetch the state after a commit, and keep it as a checkpoint."""
        state = sources.state(commit)
        model = self._restored(state)
        require_state(model, commit)
        record = commit.record
        self._checkpoints.write(
            Checkpoint(record.version, commit.digest, record.state_digest), state
        )
        return model

    # Looked up when they are needed: a standby that goes on from memory needs none of them.

    @cached_property
    def _places(self) -> frozenset[str]:
        return frozenset(self._checkpoints.places())

    @cached_property
    def _logged(self) -> frozenset[int]:
        return frozenset(each.version for each in self._own_log.entries())

    @cached_property
    def _elsewhere(self) -> frozenset[Place]:
        return frozenset(self._sources.checkpoints() if self._sources else ())

    def _head_of(self, place: Place) -> LogHead:
        """Read or fetch record and annex of a version; without them there is no way."""
        try:
            return self._log.head(place)
        except RecoveryError as error:
            raise self._failed(str(error)) from error

    def _skip(self, place: Place, error: CoordinatorError) -> None:
        self._skipped.append(f"from version {place.version}: {error}")

    def _require_chain(self, previous: Commit | None, commit: Commit) -> None:
        if previous is None or commit.record.rollback is None:
            broken = break_in_chain(previous, commit.record)
        else:
            broken = break_in_restoring(previous, commit.record)
        if broken is not None:
            raise ForkedChainError(f"the log of {self._job.name} is not one chain: {broken}")

    def _failed(self, reason: str) -> RecoveryError:
        tried = "; ".join(self._skipped) or "no checkpoint was found on the way"
        version = self._head.record.version
        return RecoveryError(_unbuilt(self._job.name, version, f"{reason}; {tried}"))


def _unbuilt(job: str, version: int, reason: str) -> str:
    return (
        f"job {job}: cannot rebuild version {version}: {reason}; "
        "start a coordinator whose storage has what is missing"
    )


def _start_digest(commit: Commit) -> bytes:
    """Return the digest of the parameters that the state after a commit is reached from."""
    record = commit.record
    return record.base_digest if record.rollback is None else record.parameters_digest
