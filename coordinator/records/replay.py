"""One committed round, taken again from its log entry: what a recovery, a standby and an audit do.

The same bytes come out as on the leader, or it is an error. No I/O.
"""

from pliska.coordinator.errors import RecoveryError
from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.log_entry import LogEntry
from pliska.coordinator.training.model import TrainingModel


def apply_entry(model: TrainingModel, entry: LogEntry) -> None:
    """Take the step of a committed round.

    Args:
        model: At the state before the round, or at the one that a rollback restores;
            spoiled when this raises.
        entry: Of the round.

    Raises:
        RecoveryError: The state after it is not the committed one.
        ModelStateError: The aggregate does not fit the model.
    """
    if entry.commit.record.rollback is None:
        model.learning_rate = entry.commit.record.learning_rate
        model.apply(entry.aggregate)
    require_state(model, entry.commit)


def require_state(model: TrainingModel, commit: Commit) -> None:
    """Refuse a model that is not at the state that a commit names.

    Raises:
        RecoveryError: It is at another one.
    """
    if model.state_digest() != commit.record.state_digest:
        raise RecoveryError(
            f"the state of version {commit.record.version} is not the one that was committed"
        )
