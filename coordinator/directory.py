"""What the store says about one job: its definition, its coordinators, its last commit.

    jobs/<job>              the job file's text, written once
    jobs/<job>/commit       the signed tip of its chain: which commit record is the last one
    jobs/<job>/horizon      the version up to which no aggregate is needed (see `horizon`)
    jobs/<job>/mode         how its rounds are run, once that was switched
    elections/jobs.<job>/   who leads and who stands by (see `pliska.locks`)

Readable by anybody who reaches the store. Only the definition is written here;
the tip is the committer's, the horizon the leader's too.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pliska.coordinator.endpoint import Endpoint
from pliska.coordinator.errors import DamagedStateError, JobConflictError
from pliska.coordinator.records.mode import Mode, ModeSetting
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.wire.job import Job, parse_job
from pliska.discovery import Keyring, Role
from pliska.locks import (
    Absent,
    Backend,
    Check,
    ConflictError,
    Create,
    Record,
    Revision,
    StoreFormatError,
    Unmodified,
    Update,
    candidates,
    connect,
    current_leader,
    leader_paths,
)

_JOBS = "jobs"


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a job.

    Attributes:
        epoch: The fencing token of this leadership; grows with every leader.
    """

    epoch: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Sighting:
    """Who led a job when the store was asked.

    Attributes:
        leader: None while nobody did.
        version: The last committed one; where nobody leads, none comes after it.
        revision: The store's, when that version was committed: another sighting
            with a smaller one is older.
    """

    leader: Leader | None
    version: int
    revision: Revision


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """The records of one job in one store. Every method blocks; safe from any thread."""

    backend: Backend
    job: str

    @classmethod
    def at(cls, address: str, job: str) -> "JobDirectory":
        """Open the store at `address`."""
        return cls(connect(address), job)

    @classmethod
    def all(cls, backend: Backend) -> tuple["JobDirectory", ...]:
        """List the jobs that were ever started in a store, oldest first."""
        records = backend.list(_JOBS).records
        return tuple(cls(backend, record.key.removeprefix(f"{_JOBS}/")) for record in records)

    @property
    def election(self) -> str:
        """Name of the election that decides who leads the job."""
        return f"jobs.{self.job}"

    @property
    def commit_key(self) -> str:
        """Key of the tip: of what names the last commit record."""
        return f"{_JOBS}/{self.job}/commit"

    @property
    def horizon_key(self) -> str:
        """Key of the version up to which no aggregate is needed."""
        return f"{_JOBS}/{self.job}/horizon"

    @property
    def keyring(self) -> Keyring:
        """The keys enrolled in this store."""
        return Keyring(self.backend)

    def signer_key(self, key_id: str) -> bytes | None:
        """Find the public key of a coordinator that signed a commit record.

        One that was revoked since still proves what it signed before.
        """
        key = self.keyring.find(key_id)
        return key.public_key if key is not None and key.role is Role.COORDINATOR else None

    def definition(self) -> Job | None:
        """Read the job as it was started; None when no coordinator has started it here.

        Raises:
            JobFileError: The stored text is not a job that this version understands.
        """
        record = self.backend.get(self._definition_key)
        if record is None:
            return None
        return parse_job(record.value.decode("utf-8", "replace"), record.key)

    def publish(self, job: Job) -> None:
        """Write the job's definition, or check that the one that is there means the same.

        Raises:
            JobConflictError: A different job of this name was started before.
        """
        if self.definition() is None:
            with contextlib.suppress(ConflictError):
                self.backend.create(self._definition_key, job.text.encode())
        published = self.definition()
        if published is None or _meaning(published) != _meaning(job):
            raise JobConflictError(
                f"{job.source}: the store {self.backend.address} holds another job named "
                f"{job.name!r}: give this one another name, or start it as it was"
            )

    @property
    def mode_key(self) -> str:
        """Key of the mode that was asked for last."""
        return f"{_JOBS}/{self.job}/mode"

    @property
    def rollback_key(self) -> str:
        """Key of the newest order to roll the job back."""
        return f"{_JOBS}/{self.job}/rollback"

    def mode(self, job: Job) -> ModeSetting:
        """Read the mode that was asked for last; at first the one that the job begins with.

        Raises:
            DamagedStateError: The record is no mode.
        """
        return self._mode(job)[0]

    def switch_mode(
        self, job: Job, mode: Mode, reason: str, checks: Sequence[Check] = ()
    ) -> ModeSetting:
        """Ask for another mode; the leader takes it up when it opens its next round.

        Args:
            job: The job.
            mode: What is wanted.
            reason: Who wants it and why.
            checks: What must hold too, such as a leadership.

        Returns:
            What is asked for now: the setting that stood if it has this mode already.

        Raises:
            ConflictError: Somebody else switched at the same time, or a check failed.
        """
        before, record = self._mode(job)
        if before.mode is mode:
            return before
        after = before.followed_by(mode, reason)
        value = after.to_bytes()
        change = Update(self.mode_key, value) if record else Create(self.mode_key, value)
        unchanged = Unmodified(self.mode_key, record.modified) if record else Absent(self.mode_key)
        self.backend.transact([*checks, unchanged], [change])
        return after

    def _mode(self, job: Job) -> tuple[ModeSetting, Record | None]:
        record = self.backend.get(self.mode_key)
        if record is None:
            return ModeSetting(Mode(job.mode.start)), None
        return ModeSetting.from_bytes(record.value), record

    def leader(self) -> Leader | None:
        """Look up who leads; None when nobody does."""
        record = current_leader(self.backend, self.election)
        if record is None:
            return None
        return Leader(record.epoch, Endpoint.from_bytes(record.value))

    @property
    def leader_paths(self) -> tuple[str, str]:
        """What to follow in the store to hear that a new `sighting` is due."""
        return leader_paths(self.election)

    def sighting(self) -> Sighting:
        """Look up who leads, and then what is committed.

        Raises:
            StoreError: The store does not answer, or what it says is not ours.
        """
        try:
            leader, record = self.leader(), self.commit()
            return Sighting(leader, _version(record), record.modified if record else Revision(0))
        except DamagedStateError as error:
            raise StoreFormatError(f"job {self.job!r}: {error}") from error

    def coordinators(self) -> tuple[Endpoint, ...]:
        """Look up all coordinators of the job, in the order in which they would lead."""
        return tuple(
            Endpoint.from_bytes(candidate.value)
            for candidate in candidates(self.backend, self.election)
        )

    def commit(self) -> Record | None:
        """Read the tip of the job's chain: a signed `Tip` in bytes, not yet verified."""
        return self.backend.get(self.commit_key)

    def committed_version(self) -> int:
        """Return the last committed version by the store's word, its signature not checked.

        Raises:
            DamagedStateError: The record is no tip.
        """
        return _version(self.commit())

    @property
    def _definition_key(self) -> str:
        return f"{_JOBS}/{self.job}"


def _version(commit: Record | None) -> int:
    return 0 if commit is None else Tip.claimed(commit.value).version


def _meaning(job: Job) -> Job:
    """Return the job without its words: comments and file names decide nothing."""
    return replace(job, text="", source="")
