"""The commit record of a rollback: the state of an older version as that of the next one.

Parameters, optimizer, the rule's memory, learning rate and data cursor are the
target's; epoch, mode, standings and the numbers go on. Pure; the caller is `stepper`,
which makes it durable as it does with a round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from pliska.coordinator.records.annex import NO_ANNEX, Annex
from pliska.coordinator.records.attendance import NOBODY_ASKED
from pliska.coordinator.records.commit import Commit, CommitRecord
from pliska.coordinator.records.log_entry import LogEntry
from pliska.coordinator.records.rollback import RULE, Rollback, Undone
from pliska.coordinator.records.standing import Standing
from pliska.coordinator.rounds.reputation import changes, exclude
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.training.training_state import vector_digest
from pliska.coordinator.wire import Signer


@dataclass(frozen=True, slots=True)
class Restorable:
    """An older version, ready to be gone on from.

    Attributes:
        rollback: That restores it.
        target: Its commit.
        model: At its state; given away.
    """

    rollback: Rollback
    target: Commit
    model: TrainingModel


@dataclass(frozen=True, slots=True)
class Now:
    """Where a job is rolled back from.

    Attributes:
        head: The last commit.
        standings: After it, by worker.
        epoch: Of the leadership.
        seed: Of the round that the rollback takes the place of.
        issued_at: Seconds since 1970; advisory.
    """

    head: Commit
    standings: Mapping[str, Standing]
    epoch: int
    seed: int
    issued_at: float


def rollback_entry(now: Now, restorable: Restorable, signer: Signer) -> LogEntry:
    """Return the log entry of a rollback; its aggregate is zero, since nobody contributed."""
    before, target, rollback = now.head.record, restorable.target.record, restorable.rollback
    version = before.version + 1
    standings = exclude(now.standings, version, rollback)
    annex = Annex(standings=tuple(standings.values())) if standings else NO_ANNEX
    aggregate = torch.zeros(restorable.model.dimension)
    record: CommitRecord = replace(
        before,
        epoch=now.epoch,
        round=version,
        version=version,
        base_digest=before.parameters_digest,
        parameters_digest=target.parameters_digest,
        state_digest=target.state_digest,
        rule=RULE,
        rule_parameters=(),
        contributions=(),
        cursor=target.cursor,
        learning_rate=target.learning_rate,
        seed=now.seed,
        aggregate_digest=vector_digest(aggregate),
        annex_digest=annex.digest,
        attendance=NOBODY_ASKED,
        convictions=(),
        changes=changes(now.standings, standings),
        rollback=rollback,
        undone=(*before.undone, Undone(rollback.target, version)),
        previous=now.head.digest,
        issued_at=now.issued_at,
    )
    return LogEntry(Commit.sign(record, signer), aggregate, annex)
