"""What a new leader takes over from the one before: model, standings, evidence, the next round.

All of it from the tip in the store and what is stored, so that it is
the same whoever leads. Blocks; called by `leading` when a leadership begins.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pliska.coordinator.directory import JobDirectory
from pliska.coordinator.docket import Docket
from pliska.coordinator.errors import DamagedStateError
from pliska.coordinator.means import Means
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.data_leases import DataLeases
from pliska.coordinator.records.evidence import charge, conviction_of
from pliska.coordinator.records.evidence_store import EvidenceStore
from pliska.coordinator.records.mode import ModeSetting
from pliska.coordinator.records.recent_rounds import RecentRounds, read_recent_rounds
from pliska.coordinator.records.standing import Standing, StandingState
from pliska.coordinator.records.tip import Tip
from pliska.coordinator.records.update_log import UpdateLog
from pliska.coordinator.replication.recovery import Warm, committed, recover
from pliska.coordinator.replication.sources import Sources
from pliska.coordinator.rounds.round_state import Phase, RoundState
from pliska.coordinator.storage.storage import Storage
from pliska.coordinator.training.model import TrainingModel
from pliska.coordinator.wire.encoding import encode
from pliska.coordinator.wire.job import Job
from pliska.locks import Record

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a leadership begins with.

    Attributes:
        record: The tip as it stood in the store; None before the first round.
        head: The commit that it names.
        model: At the state of that commit.
        recent: What the rounds up to it settled.
        standings: Of the workers after it.
        docket: Evidence that no record has taken in.
        state: Of the round to be opened.
    """

    record: Record | None
    head: Commit | None
    model: TrainingModel
    recent: RecentRounds
    standings: Mapping[str, Standing]
    docket: Docket
    state: RoundState


def inherit(means: Means, sources: Sources | None, warm: Warm | None) -> Inheritance:
    """Take over what the leader before has committed.

    Args:
        means: The job, the store and this coordinator's storage.
        sources: The other coordinators.
        warm: The model of a standby.

    Raises:
        RecoveryError, DamagedStateError: It cannot be rebuilt: do not lead.
        StoreError: The store does not answer.
    """
    job, directory, storage = means.job, means.directory, means.storage
    record = directory.commit()
    head = None
    if record is not None:
        tip = Tip.verified(record.value, job.name, directory.signer_key)
        head = committed(tip, storage, sources)
    recovered = recover(job, head, storage, sources, warm)
    for reason in recovered.skipped:
        log.warning("job=%s skipped=%s", job.name, reason)
    update_log = UpdateLog(storage, job.name)
    return Inheritance(
        record=record,
        head=head,
        model=recovered.model,
        recent=read_recent_rounds(head, recovered.model.parameters_digest(), update_log),
        standings=_standings(head, update_log),
        docket=_docket(head, directory, storage),
        state=_first_state(job, head, directory.mode(job), means.now()),
    )


def _standings(head: Commit | None, update_log: UpdateLog) -> Mapping[str, Standing]:
    """Read how the workers stand after the last round, so that a new leader goes on from there."""
    if head is None:
        return {}
    return update_log.head(head.record.version, head.digest).annex.by_worker()


def _docket(head: Commit | None, directory: JobDirectory, storage: Storage) -> Docket:
    """Read evidence that the last leader made durable and no record has taken in."""
    docket = Docket()
    known = {each.evidence for each in head.record.convictions} if head else set()
    store = EvidenceStore(storage, directory.job)
    keys = KeyBook.of_enrolled(directory.keyring.list())
    for name in store.names_since(head.record.round if head else 0):
        try:
            kept = store.read(name)
            charged = charge(kept.evidence, keys)
        except DamagedStateError as error:
            log.warning("job=%s reason=%s", directory.job, f"evidence is left aside: {error}")
        else:
            if kept.digest not in known and charged.is_against_worker:
                docket.convict(conviction_of(kept.evidence, charged), encode(kept.evidence))
    return docket


def _first_state(job: Job, head: Commit | None, setting: ModeSetting, now: float) -> RoundState:
    """Begin a fresh job with all its workers, one taken over with those of its last round."""
    begun = RoundState(1, job.rounds.workers, since=now, setting=setting, requested=setting)
    if head is None:
        return begun
    record = head.record
    if record.round >= job.rounds.count:
        reason = f"finished after {record.round} rounds"
        finished = replace(begun, round=record.round, expected=0, phase=Phase.FINISHED)
        return replace(finished, reason=reason)
    confined = {each.worker for each in record.changes if each.after is StandingState.QUARANTINE}
    expected = sum(each.worker not in confined for each in record.contributions)
    if record.rollback is not None:
        expected = job.rounds.workers - len(record.rollback.excluded)
    leases = DataLeases(record.cursor)
    return replace(begun, round=record.round + 1, expected=expected, leases=leases)
