"""A committed round computed again from its kept gradients: the aggregate, the step, the verdicts.

The state before the round comes from the newest checkpoint before it and the log
(`recovery`); the gradients are read as their workers signed them. Every number
must come out as the commit record has it, bit for bit on the same type of
device; what does not is named. Several rounds in a row are replayed on one model.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from pliska.aggregation import Aggregation, AggregationError
from pliska.aggregation.report import Verdict
from pliska.coordinator.audit.proof import is_of
from pliska.coordinator.errors import DamagedStateError, NotKeptError
from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.commit import Commit, CommitRecord
from pliska.coordinator.records.payloads import PayloadStore, decoded
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.recovery import recover
from pliska.coordinator.rounds.combination import recombine
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.training_state import vector_digest
from pliska.coordinator.wire import GradientHeader, peek
from pliska.coordinator.wire.job import Job

SCORE_TOLERANCE = 1e-6
"""Scores and margins that are closer than this, as a share of themselves, are equal."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One round computed again.

    Attributes:
        gradients: How many were combined.
        differences: What did not come out as the record has it, each in words.
    """

    commit: Commit
    gradients: int
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Rounds in a row.

    Attributes:
        previous: The commit before the first of them; None for the job's first.
    """

    previous: Commit | None
    commits: list[Commit]


class Replay:
    """Computes rounds of one job again. Blocks on the disk and the processor."""

    def __init__(self, job: Job, storage: Storage) -> None:
        """Take a job's files; nothing is read yet.

        Args:
            job: As it was run.
            storage: Holds log, checkpoints and kept gradients.
        """
        self._job = job
        self._storage = storage
        self._log = UpdateLog(storage, job.name)
        self._payloads = PayloadStore(storage, job.name)

    def runs(self, commits: Iterable[Commit]) -> tuple[Run, ...]:
        """Find the rounds all of whose gradients are kept, those in a row together.

        Args:
            commits: The whole chain, oldest first.
        """
        names = frozenset(self._payloads.names())
        runs: list[Run] = []
        previous: Commit | None = None
        is_in_run = False
        for commit in commits:
            is_kept = self._is_kept(commit, names)
            if is_kept and is_in_run:
                runs[-1].commits.append(commit)
            elif is_kept:
                runs.append(Run(previous, [commit]))
            previous, is_in_run = commit, is_kept
        return tuple(runs)

    def rounds(self, run: Run) -> Iterator[Replayed]:
        """Compute rounds again, one by one.

        Raises:
            NotKeptError: A gradient, or a way to the state before, is not kept any more.
            DamagedStateError: What is kept is not what was signed.
            RecoveryError: The state before cannot be rebuilt.
        """
        model = recover(self._job, run.previous, self._storage).model
        for commit in run.commits:
            yield self._round(commit, model)

    def _is_kept(self, commit: Commit, names: Collection[str]) -> bool:
        headers = self._headers(commit).values()
        return bool(headers) and all(
            self._payloads.name(header.round, header.payload_root) in names for header in headers
        )

    def _round(self, commit: Commit, model: TrainingModel) -> Replayed:
        record = commit.record
        rows = self._rows(commit, model.dimension)
        differences = [_differs("parameters before", model.parameters_digest(), record.base_digest)]
        try:
            aggregation = recombine(record, rows, model.memory)
        except AggregationError as error:
            raise DamagedStateError(
                f"the gradients of round {record.round} cannot be combined: {error}"
            ) from error
        model.learning_rate = record.learning_rate
        model.apply(aggregation.vector)
        differences += [
            _differs("aggregate", vector_digest(aggregation.vector), record.aggregate_digest),
            _differs("parameters after", model.parameters_digest(), record.parameters_digest),
            _differs("training state after", model.state_digest(), record.state_digest),
            *_report_differences(aggregation, record),
        ]
        return Replayed(commit, len(rows), tuple(filter(None, differences)))

    def _rows(self, commit: Commit, dimension: int) -> dict[str, torch.Tensor]:
        """Read the gradients that reached the rule, as their workers signed them."""
        return {
            worker: torch.from_numpy(
                decoded(self._payloads.read(header.round, header.payload_root), header, dimension)
            )
            for worker, header in self._headers(commit).items()
        }

    def _headers(self, commit: Commit) -> Mapping[str, GradientHeader]:
        """Return the headers of the gradients that reached the rule, by worker."""
        annex: Annex = self._log.head(commit.record.version, commit.digest).annex
        headers = [peek(signed, GradientHeader).claim for signed in annex.headers]
        found: dict[str, GradientHeader] = {}
        for contribution in commit.record.contributions:
            if contribution.verdict == Verdict.REFUSED:
                continue
            header = next(
                (each for each in headers if is_of(each, contribution, self._job.name)), None
            )
            if header is None:
                raise NotKeptError(
                    f"no header of {contribution.worker} is kept for version "
                    f"{commit.record.version}"
                )
            found[contribution.worker] = header
        return found


def _differs(what: str, found: bytes, expected: bytes) -> str:
    if found == expected:
        return ""
    return f"{what}: {found.hex()[:16]}, but the record has {expected.hex()[:16]}"


def _report_differences(
    aggregation: Aggregation[torch.Tensor], record: CommitRecord
) -> Iterator[str]:
    """Compare what the rule says of each worker with what the record has.

    Verdicts and weights must be equal. Scores and margins explain them, and their
    last digits follow the number of threads that measured the distances.
    """
    said = {entry.worker: entry for entry in aggregation.report}
    for each in record.contributions:
        entry = said.get(each.worker)
        if entry is None or (entry.verdict.value, entry.weight) != (each.verdict, each.weight):
            found = "nothing" if entry is None else f"{entry.verdict.value}, {entry.weight:.6g}"
            yield (
                f"verdict on {each.worker}: {found}, "
                f"but the record has {each.verdict}, {each.weight:.6g}"
            )
        elif not (_is_close(entry.score, each.score) and _is_close(entry.margin, each.margin)):
            yield (
                f"score of {each.worker}: {entry.score:.6g}, margin {entry.margin:.6g}, "
                f"but the record has {each.score:.6g}, {each.margin:.6g}"
            )


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=SCORE_TOLERANCE, abs_tol=SCORE_TOLERANCE)
