"""The numerical work of a round: combine the rows, step the model, make it durable, commit.

The order is what makes a committed round safe: log entry on disk, then the
tip in the store (both by the `ledger`), then the version for the
workers. Blocks; its methods are called in threads, one at a time, by
`coordinator.driver`, but for `advance`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from pliska.coordinator import free_memory
from pliska.coordinator.combiner import Combined, Combiner
from pliska.coordinator.docket import Docket
from pliska.coordinator.publisher import Published
from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.attendance import Attendance
from pliska.coordinator.records.checkpoint import Checkpoint
from pliska.coordinator.records.checkpoint_writer import CheckpointWriter
from pliska.coordinator.records.commit import GENESIS, Commit, CommitRecord, cursor_after
from pliska.coordinator.records.data_leases import DataCursor
from pliska.coordinator.records.recent_rounds import RecentRounds
from pliska.coordinator.records.standing import Standing
from pliska.coordinator.records.update_log import LogEntry
from pliska.coordinator.replication.ledger import Ledger
from pliska.coordinator.rounds.account import contributions_of, headers_of
from pliska.coordinator.rounds.reputation import changes, judge
from pliska.coordinator.rounds.restoring import Now, Restorable, rollback_entry
from pliska.coordinator.rounds.round_events import Aggregated, Filtered
from pliska.coordinator.rounds.round_state import Sealed
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.tensor_file import encode_tensors
from pliska.coordinator.training.training_state import tensor_bytes, vector_digest
from pliska.coordinator.wire import Signer
from pliska.coordinator.wire.job import Job
from pliska.coordinator.wire.seed import derive_seed


@dataclass(frozen=True, slots=True)
class Head:
    """The last committed version."""

    version: int
    parameters_digest: bytes
    record_digest: bytes


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A step that was taken in memory and is not committed."""

    commit: Commit
    aggregate: torch.Tensor
    annex: Annex


class Stepper:
    """One leader's hold on the model, from the recovered version on."""

    def __init__(
        self,
        *,
        job: Job,
        epoch: int,
        combiner: Combiner,
        model: TrainingModel,
        head: Commit | None,
        recent: RecentRounds,
        standings: Mapping[str, Standing],
        docket: Docket,
        ledger: Ledger,
        storage: Storage,
        checkpoints: CheckpointWriter,
        signer: Signer,
        wall_time: Callable[[], float],
    ) -> None:
        """Begin at the recovered model.

        Args:
            job: The job.
            epoch: Of this leadership.
            combiner: Combines the rows.
            model: At the state that `head` names.
            head: The last commit; None before the first round.
            recent: What the rounds up to it settled.
            standings: Of the workers after it.
            docket: What its records have yet to take in.
            ledger: Makes each round durable and commits it.
            storage: Takes the last version as a safetensors file.
            checkpoints: Takes the whole state now and then.
            signer: The coordinator's key.
            wall_time: Seconds since 1970; advisory.
        """
        self.job = job
        self.epoch = epoch
        self.head = Head(
            version=head.record.version if head else 0,
            parameters_digest=model.parameters_digest(),
            record_digest=head.digest if head else GENESIS,
        )
        self.last_commit = head
        self.standings = standings
        self.recent = recent
        self.combiner = combiner
        self._model = model
        self.model_file: str | None = None
        self._ledger = ledger
        self._storage = storage
        self._checkpoints = checkpoints
        self._signer = signer
        self._wall_time = wall_time
        self._docket = docket
        self._prepared: _Prepared | None = None

    def roll_back(self, restorable: Restorable) -> None:
        """Make a rollback durable and commit it, with all before it; `advance` follows.

        Args:
            restorable: A version on the chain, before the last one.

        Raises:
            StorageError, GrantLostError, NotReplicatedError: As `commit`.
        """
        if self.last_commit is None:
            raise AssertionError("a job is rolled back after its first round")
        now = Now(
            head=self.last_commit,
            standings=self.standings,
            epoch=self.epoch,
            seed=self._seed(self.head.version + 1),
            issued_at=self._wall_time(),
        )
        entry = rollback_entry(now, restorable, self._signer)
        self._model = restorable.model
        self.combiner.forget()
        self._prepared = _Prepared(entry.commit, entry.aggregate, entry.annex)
        self._ledger.append(entry)
        self._ledger.flush()

    @property
    def committed_version(self) -> int:
        """The last version that no failover takes back; behind the head only between commits."""
        committed = self._ledger.committed
        return committed.record.version if committed else 0

    @property
    def cursor(self) -> DataCursor:
        """Which batches of the training data are done."""
        return self.last_commit.record.cursor if self.last_commit else DataCursor()

    def aggregate(
        self, sealed: Sealed, rows: Mapping[str, torch.Tensor], attendance: Attendance
    ) -> Aggregated | Filtered:
        """Combine the rows of a sealed round and step the model in memory.

        Args:
            sealed: The round.
            rows: float32 [d] of each contributor.
            attendance: Who came when.

        Returns:
            What the round machine is told; the model is stepped if `Aggregated`.

        Raises:
            AggregationError: The rows are too few or too many are bad; the
                model is as it was.
        """
        free_memory.give_back()  # what was taken to receive the gradients
        seed = self._seed(self.head.version + 1)
        combined = self.combiner.combine(sealed, rows, seed, self._model.memory)
        free_memory.give_back()  # and what the rule took
        if isinstance(combined, Filtered):
            return combined
        learning_rate = self._model.learning_rate
        self._model.apply(combined.vector)
        record, annex = self._record(combined, sealed, attendance, learning_rate)
        self._prepared = _Prepared(Commit.sign(record, self._signer), combined.vector, annex)
        return Aggregated()

    def commit(self) -> None:
        """Make the step durable and commit it, if it is due by itself; `advance` follows.

        Raises:
            StorageError: A log entry could not be written; nothing is committed.
            GrantLostError: This coordinator no longer leads.
        """
        prepared = self._require_prepared()
        self._ledger.append(LogEntry(prepared.commit, prepared.aggregate, prepared.annex))

    @property
    def prepared(self) -> tuple[Commit, Annex]:
        """The step that is being committed."""
        prepared = self._require_prepared()
        return prepared.commit, prepared.annex

    def advance(self) -> Commit:
        """Take the committed step as the head. Does not block: call it on the event loop.

        What others read between two awaits then never belongs to two rounds.
        """
        prepared = self._require_prepared()
        record = prepared.commit.record
        self._prepared = None
        self.last_commit = prepared.commit
        self.standings = prepared.annex.by_worker()
        self._docket.strike(record, prepared.annex)
        self.head = Head(record.version, record.parameters_digest, prepared.commit.digest)
        self.recent.add(record)
        return prepared.commit

    def publish(self, is_final: bool) -> Published:
        """Return the committed version for the workers, and begin its checkpoint if one is due.

        Raises:
            CheckpointError: The checkpoint before failed.
        """
        version, every = self.head.version, self.job.checkpoint.every
        parameters = self._model.parameters()
        self.combiner.publish(version, parameters)
        commit = self.last_commit
        is_due = is_final or version % every == 0
        if commit is not None and (is_due or commit.record.rollback is not None):
            self._save(commit)
        if is_final:
            self._export()
        return Published(
            version=version,
            digest=self.head.parameters_digest,
            parameters=bytes(tensor_bytes(parameters)),
            is_final=is_final,
        )

    def _require_prepared(self) -> _Prepared:
        if self._prepared is None:
            raise AssertionError("a step is committed after it was taken")
        return self._prepared

    def _save(self, commit: Commit) -> None:
        record = commit.record
        checkpoint = Checkpoint(record.version, commit.digest, record.state_digest)
        self._checkpoints.save(checkpoint, self._model.export_state())

    def _export(self) -> None:
        """Write the last version as others read it: a safetensors file of named tensors."""
        name = f"jobs/{self.job.name}/models/{self.head.version:012d}.safetensors"
        self._storage.write(name, encode_tensors(self._model.named_parameters()))
        self.model_file = name

    def _seed(self, version: int) -> int:
        """Return the seed of the round that makes this version: what a rule draws lots with."""
        return derive_seed("round", self.job.seed, version)

    def _record(
        self, combined: Combined, sealed: Sealed, attendance: Attendance, learning_rate: float
    ) -> tuple[CommitRecord, Annex]:
        version = self.head.version + 1
        contributions = contributions_of(sealed, combined.report, combined.dampings)
        convicted = self._docket.convictions()
        convictions = tuple(conviction for conviction, _ in convicted)
        standings = judge(self.standings, version, contributions, convictions, self.job.reputation)
        annex = Annex(
            headers=headers_of(sealed, contributions),
            standings=tuple(standings.values()),
            evidence=tuple(evidence for _, evidence in convicted),
            receipts=self._docket.receipts(),
        )
        record = CommitRecord(
            job=self.job.name,
            epoch=self.epoch,
            round=version,
            version=version,
            mode=sealed.setting.mode,
            mode_epoch=sealed.setting.mode_epoch,
            base_digest=self.head.parameters_digest,
            parameters_digest=self._model.parameters_digest(),
            state_digest=self._model.state_digest(),
            rule=combined.rule,
            rule_parameters=combined.parameters,
            contributions=contributions,
            cursor=cursor_after(self.cursor, contributions),
            learning_rate=learning_rate,
            seed=self._seed(version),
            aggregate_digest=vector_digest(combined.vector),
            annex_digest=annex.digest,
            attendance=attendance,
            convictions=convictions,
            changes=changes(self.standings, standings),
            undone=self.last_commit.record.undone if self.last_commit else (),
            previous=self.head.record_digest,
            issued_at=self._wall_time(),
        )
        return record, annex
