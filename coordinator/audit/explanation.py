"""What became of every worker's gradient in one round, and what would have changed it.

Read from the commit record, its annex and the kept receipts: nothing is computed
again and no signature is checked (`proof` does that for one worker). Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pliska.coordinator.audit.proof import Outcome, of_receipt, of_verdict
from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.commit import FILTER, CommitRecord, Contribution
from pliska.coordinator.records.receipts import KeptReceipt
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.records.standing import Standing, StandingState
from pliska.coordinator.rounds.reputation import term_rounds
from pliska.coordinator.wire.job_tables import Reputation
from pliska.coordinator.wire.messages import Receipt

BORDERED = {
    "krum": "a Krum score",
    "multi-krum": "a Krum score",
    "mda": "a largest distance to the chosen gradients",
    "monna": "a distance to the trusted gradient",
    "cge": "a length",
}
"""What a rule measures whose margin is 1 - measure / border."""
COORDINATE_WISE = frozenset(
    {"coordinate-median", "trimmed-mean", "meamed", "bulyan", "multi-bulyan", "sign-vote"}
)
"""Rules that decide on each coordinate by itself."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One worker's fate.

    Attributes:
        weight: Share of the aggregate; None where its gradient did not reach the rule.
        score: How suspicious it looked (see `aggregation.WorkerReport`).
        margin: How clearly the rule decided, in the rule's own terms.
        arrived_s: Seconds from the opening of the round to its gradient.
        change: What would have made it otherwise.
    """

    worker: str
    outcome: Outcome
    weight: float | None
    score: float | None
    margin: float | None
    arrived_s: float | None
    reason: str
    change: str


def explain(
    record: CommitRecord,
    annex: Annex,
    receipts: Iterable[KeptReceipt],
    reputation: Reputation,
) -> tuple[Explanation, ...]:
    """Explain the fate of every worker that the round knew, sorted by worker.

    Args:
        record: Of the round.
        annex: Of the record.
        receipts: Those kept of the round.
        reputation: The job's settings.
    """
    arrived = {each.worker: each.after_s for each in record.attendance.arrivals}
    standings = annex.by_worker()
    told = [_of_contribution(each, record.rule, arrived) for each in record.contributions]
    told += [_of_receipt(kept.claim, standings, reputation) for kept in receipts]
    told += [
        _of_excluded(worker, standings.get(worker), reputation)
        for worker in record.attendance.excluded
    ]
    told += [_of_absent(worker) for worker in record.attendance.absent]
    told += [_of_stranger(worker, record.rollback) for worker in standings]
    first: dict[str, Explanation] = {}
    for explanation in told:
        first.setdefault(explanation.worker, explanation)
    return tuple(first[worker] for worker in sorted(first))


def _of_contribution(
    contribution: Contribution, rule: str, arrived: Mapping[str, float]
) -> Explanation:
    outcome = of_verdict(contribution.verdict)
    is_judged = outcome is not Outcome.REFUSED
    return Explanation(
        worker=contribution.worker,
        outcome=outcome,
        weight=contribution.weight if is_judged else None,
        score=contribution.score if is_judged else None,
        margin=contribution.margin if is_judged else None,
        arrived_s=arrived.get(contribution.worker),
        reason=contribution.reason,
        change=_change_of_judged(contribution, outcome, rule),
    )


def _of_receipt(
    receipt: Receipt, standings: Mapping[str, Standing], reputation: Reputation
) -> Explanation:
    outcome = of_receipt(receipt)
    if outcome is Outcome.QUARANTINED:
        change = _end_of_quarantine(standings.get(receipt.worker), reputation)
    else:
        change = _change_of_late(receipt.reason)
    return _without_gradient(receipt.worker, outcome, receipt.reason, change)


def _of_excluded(worker: str, standing: Standing | None, reputation: Reputation) -> Explanation:
    reason = "in quarantine"
    if standing is not None and standing.state is StandingState.EXCLUDED:
        reason = f"excluded since round {standing.since}: {standing.reason}"
    elif standing is not None and standing.quarantines:
        reason = f"in quarantine since round {standing.since}: {standing.reason}"
    change = _end_of_quarantine(standing, reputation)
    return _without_gradient(worker, Outcome.QUARANTINED, reason, change)


def _of_absent(worker: str) -> Explanation:
    reason = "nothing of it had come when the round closed"
    change = "a gradient before the round closed"
    return _without_gradient(worker, Outcome.ABSENT, reason, change)


def _of_stranger(worker: str, rollback: Rollback | None) -> Explanation:
    """Explain a worker that earlier rounds knew and this one did not."""
    if rollback is not None:
        reason = f"no gradient counts: {rollback.actor} put the job back on version "
        reason += f"{rollback.target}: {rollback.reason}"
        return _without_gradient(worker, Outcome.ABSENT, reason, "-")
    reason = "it was not there when the round opened"
    change = "joining before the round opened"
    return _without_gradient(worker, Outcome.ABSENT, reason, change)


def _without_gradient(worker: str, outcome: Outcome, reason: str, change: str) -> Explanation:
    return Explanation(worker, outcome, None, None, None, None, reason, change)


def _change_of_judged(contribution: Contribution, outcome: Outcome, rule: str) -> str:
    match outcome:
        case Outcome.COUNTED if contribution.damping < 1:
            return (
                f"being computed on the newest version, not {contribution.lag} versions before: "
                f"for its age it counted at {contribution.damping:.2f}"
            )
        case Outcome.COUNTED:
            return _change_of_counted(contribution.margin, rule)
        case Outcome.OUTVOTED:
            return _change_of_outvoted(contribution.margin, rule)
        case _:
            return "a gradient of finite numbers, one a round, that is what its header says"


def _change_of_counted(margin: float, rule: str) -> str:
    if rule in BORDERED and 0 < margin < 1:
        return f"{BORDERED[rule]} {1 / (1 - margin) - 1:.0%} higher"
    if rule == "centered-clipping" and margin < 0:
        return f"a distance {-margin:.0%} shorter: it was clipped"
    if rule in COORDINATE_WISE:
        return f"values nearer the middle: {margin + 1:.2f} times an equal share is from it"
    return "-"


def _change_of_outvoted(margin: float, rule: str) -> str:
    if rule in BORDERED and margin < 0:
        return f"{BORDERED[rule]} {1 - 1 / (1 - margin):.0%} lower"
    if rule in COORDINATE_WISE:
        return "a value nearer the middle in at least one coordinate"
    if rule == FILTER:
        return "a gradient that differs less from its last one, for how far the model moved"
    return "a gradient nearer to those of the other workers"


def _change_of_late(reason: str) -> str:
    words = reason.split()
    if words[:1] == ["arrived"] and words[2:3] == ["s"]:
        return f"arriving {words[1]} s sooner"
    return "arriving whole before the round closed"


def _end_of_quarantine(standing: Standing | None, reputation: Reputation) -> str:
    if standing is not None and standing.state is StandingState.EXCLUDED:
        return "nothing: a rollback excluded it for good; only a worker of another name can join"
    if standing is None or not standing.quarantines:
        return "nothing: its time in quarantine ends by itself"
    until = standing.since + term_rounds(standing.quarantines, reputation)
    return f"nothing: its time in quarantine ends with round {until}"
