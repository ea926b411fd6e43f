"""The chain of commits: whether one record may follow another, and the reason where it may not.

Pure: it reads no bytes and checks no signature (`commit`), and says nothing of which
chain counts (`tip`). Asked by whoever takes records over from others: recovery, the
standby that follows, the audit.
"""

from pliska.coordinator.records.commit import GENESIS, Commit, CommitRecord, cursor_after
from pliska.coordinator.records.data_leases import DataCursor
from pliska.coordinator.records.rollback import Rollback, undoing
from pliska.coordinator.wire.errors import MalformedError


def break_in_chain(previous: Commit | None, record: CommitRecord) -> str | None:
    """Say why `record` does not follow `previous`, or return None where it does.

    Args:
        previous: The commit before it; None where `record` must be the first.
        record: Of the same job.
    """
    if previous is None:
        if record.previous != GENESIS or record.version != 1 or record.undone or record.rollback:
            return f"version {record.version} is not the first of its chain"
        return _break_in_data(DataCursor(), record)
    before = previous.record
    if record.previous != previous.digest:
        return (
            f"version {record.version} names another record before it than version {before.version}"
        )
    if record.version != before.version + 1 or record.round <= before.round:
        return (
            f"version {record.version} of round {record.round} follows "
            f"version {before.version} of round {before.round}"
        )
    if record.epoch < before.epoch:
        return f"version {record.version} is of epoch {record.epoch}, after epoch {before.epoch}"
    if record.base_digest != before.parameters_digest:
        return (
            f"version {record.version} starts from other parameters than version {before.version}"
        )
    if record.rollback is not None:
        return _break_in_rollback(before, record, record.rollback)
    if record.undone != before.undone:
        return f"version {record.version} names other rollbacks than version {before.version}"
    return _break_in_data(before.cursor, record)


def break_in_restoring(target: Commit, record: CommitRecord) -> str | None:
    """Say why `record` is not the rollback to `target`, or return None where it is.

    Args:
        target: On the same chain, before `record`.
        record: Has a rollback.
    """
    rollback, restored = record.rollback, target.record
    named = None if rollback is None else (rollback.target, rollback.record_digest)
    if named != (restored.version, target.digest):
        return f"version {record.version} is no rollback to version {restored.version}"
    state = (record.parameters_digest, record.state_digest, record.cursor)
    if state != (restored.parameters_digest, restored.state_digest, restored.cursor):
        return f"version {record.version} does not have the state of version {restored.version}"
    return None


def _break_in_rollback(
    before: CommitRecord, record: CommitRecord, rollback: Rollback
) -> str | None:
    """Say why a rollback does not follow a record; its target is looked at elsewhere."""
    if record.contributions or record.convictions:
        return f"version {record.version} is a rollback and counts gradients"
    if undoing(rollback.target, before.undone) is not None:
        return f"version {record.version} goes back to version {rollback.target}, which is undone"
    last = record.undone[-1] if record.undone else None
    named = None if last is None else (last.target, last.version)
    is_noted = named == (rollback.target, record.version)
    if not is_noted or record.undone[:-1] != before.undone:
        return f"version {record.version} does not note its rollback beside those before it"
    return None


def _break_in_data(before: DataCursor, record: CommitRecord) -> str | None:
    """Say why a record's data cursor does not follow from its contributions."""
    try:
        follows = cursor_after(before, record.contributions)
    except MalformedError as error:
        return f"version {record.version}: {error}"
    if record.cursor == follows:
        return None
    return f"version {record.version} has another data cursor than follows from its contributions"
