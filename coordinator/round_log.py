"""What the rounds of one leadership say in the log: phases, modes, steps, standings."""

import logging

from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.effective_step import EffectiveStep
from pliska.coordinator.rounds.round_state import RoundState

log = logging.getLogger(__name__)


class RoundLog:
    """Says each thing when it changes. Decides nothing."""

    def __init__(self, batch: int) -> None:
        """Begin with nothing said.

        Args:
            batch: Examples behind one gradient.
        """
        self._batch = batch
        self._told_mode_epoch: int | None = None

    def advanced(self, before: RoundState, after: RoundState) -> None:
        """Say why the machine is where it is, and a mode that was taken up."""
        if after.reason != before.reason:
            log.info("round=%d phase=%s reason=%s", after.round, after.phase, after.reason)
        if after.setting != before.setting:
            setting = after.setting
            log.info(
                "round=%d mode=%s mode_epoch=%d reason=%s",
                after.round,
                setting.mode,
                setting.mode_epoch,
                setting.reason,
            )

    def committed(self, commit: Commit) -> None:
        """Say whose standing changed and why, and what the first step in a mode amounts to."""
        record = commit.record
        if record.mode_epoch != self._told_mode_epoch:
            self._told_mode_epoch = record.mode_epoch
            step = EffectiveStep.of(record, self._batch)
            log.info(
                "round=%d mode=%s effective_learning_rate=%g effective_batch=%d",
                record.round,
                record.mode,
                step.learning_rate,
                step.batch,
            )
        for change in record.changes:
            log.warning(
                "worker=%s standing=%s before=%s reason=%s",
                change.worker,
                change.after,
                change.before,
                change.reason,
            )

    def silent(self, workers: tuple[str, ...]) -> None:
        """Say who was given up."""
        log.warning("workers=%s reason=%s", ",".join(workers), "silent for longer than the lease")
