"""The job as its leader sees it: one snapshot that the command line and the metrics only render.

Pure reading; nothing here changes anything.
"""

from collections.abc import Mapping
from typing import Any

from pliska.coordinator.members import Members
from pliska.coordinator.records.effective_step import EffectiveStep
from pliska.coordinator.records.standing import Standing
from pliska.coordinator.rounds.reputation import Quarantine
from pliska.coordinator.rounds.round_state import RoundState
from pliska.coordinator.rounds.staleness import LagSummary
from pliska.coordinator.stepper import Stepper
from pliska.coordinator.tally import Tally
from pliska.coordinator.wire.job import Job

ACCURACIES_MAX = 1000
"""The newest measurements are shown, at most so many."""


def job_status(
    job: Job,
    stepper: Stepper,
    state: RoundState,
    members: Members,
    tally: Tally,
    accuracy: Mapping[int, float],
    quarantined: Quarantine,
) -> dict[str, Any]:
    """Return the snapshot, ready for JSON.

    Args:
        job: The job.
        stepper: Knows the last commit and what the rounds said of the workers.
        state: Where the round stands.
        members: Who is here.
        tally: What was answered to whom.
        accuracy: Measured accuracy by version.
        quarantined: Who is kept out, and who should be and is needed.
    """
    commit = stepper.last_commit
    measured = sorted(accuracy.items())[-ACCURACIES_MAX:]
    return {
        "job": job.name,
        "epoch": stepper.epoch,
        "phase": state.phase.value,
        "reason": state.reason,
        "round": state.round,
        "rounds": job.rounds.count,
        "version": stepper.head.version,
        "training_epoch": commit.record.training_epoch if commit else 0,
        "undone": [[each.target + 1, each.version - 1] for each in commit.record.undone]
        if commit
        else [],
        "committed_version": stepper.committed_version,
        "digest": stepper.head.parameters_digest.hex(),
        "rule": {"name": job.rule.name, **job.rule.parameters},
        "accuracy": [{"version": version, "accuracy": value} for version, value in measured],
        "mode": _mode(job, stepper, state),
        "workers": _workers(stepper, state, members, tally, quarantined),
        "replies": dict(tally.totals()),
        "reasons": dict(tally.reasons()),
        "model_file": stepper.model_file,
    }


def _mode(job: Job, stepper: Stepper, state: RoundState) -> dict[str, Any]:
    """Say how the rounds are run, and what comes of it."""
    lags = LagSummary.of(stepper.recent.lags())
    present = state.present
    shown = {
        "mode": state.setting.mode.value,
        "mode_epoch": state.setting.mode_epoch,
        "reason": state.setting.reason,
        "asked_for": state.requested.mode.value,
        "asked_for_epoch": state.requested.mode_epoch,
        "policy": job.mode.policy,
        "soft_deadline_s": state.soft_deadline_s,
        "lag_mean": round(lags.mean, 4),
        "lag_most": lags.most,
        "late_share": round(lags.late_share, 4),
        "stragglers": sorted(state.turns.stragglers(present)),
    }
    if stepper.last_commit is None:
        return shown
    step = EffectiveStep.of(stepper.last_commit.record, job.data.batch)
    return {
        **shown,
        "effective_learning_rate": step.learning_rate,
        "effective_batch": step.batch,
    }


def _workers(
    stepper: Stepper, state: RoundState, members: Members, tally: Tally, quarantined: Quarantine
) -> list[dict[str, Any]]:
    present = members.present()
    return [
        {
            "worker": worker,
            "is_here": worker in present,
            "slot": slot.state.value if (slot := state.slot_of(worker)) else None,
            "lease": state.leases.of(worker),
            **_standing(stepper.standings.get(worker, Standing(worker=worker))),
            "quarantine": quarantined.kept_out.get(worker) or quarantined.spared.get(worker),
            "replies": dict(tally.of_worker(worker)),
        }
        for worker in sorted({*present, *stepper.standings})
    ]


def _standing(standing: Standing) -> dict[str, Any]:
    return {
        "standing": standing.state.value,
        "since_round": standing.since,
        "suspicion": round(standing.suspicion, 4),
        "is_suspected": standing.is_suspected,
        "was_suspected": standing.was_suspected,
        "rounds": standing.rounds,
        "kept": standing.rounds - standing.cut,
        "outvoted": standing.outvoted,
        "refused": standing.refused,
        "cut_share": round(standing.cut_share, 4),
        "offences": standing.offences,
        "last_offence": standing.reason or None,
        "quarantines": standing.quarantines,
    }
