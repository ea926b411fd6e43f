"""What a committed round changes in how its workers stand, and who is kept out of the next one.

    GOOD <-> PROBATION -> QUARANTINE -> PROBATION (time served)
    any of them -> EXCLUDED (by a rollback, for good)

Suspicion is a moving share of a worker's gradients that were refused for their
content or lay far outside the rest. It rises above one threshold before a state
begins and falls below a lower one before it ends. Evidence that convicts means
quarantine at once. The aggregation rule is what protects the model; reputation
only spares it the workers that keep trying it.

Pure, and a function of the chain of commit records alone: every leader and
every auditor comes to the same standings.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pliska.aggregation.report import Verdict
from pliska.coordinator.records.commit import Contribution
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.records.standing import (
    STANDINGS_MAX,
    Conviction,
    Standing,
    StandingChange,
    StandingState,
)
from pliska.coordinator.wire.job_tables import Reputation
from pliska.coordinator.wire.limits import WHY_CHARACTERS_MAX

DOUBLINGS_MAX = 6
"""Each quarantine lasts twice as long as the one before, so many times."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Who is in quarantine, and what comes of it for the next round.

    Attributes:
        kept_out: Reason by worker whose gradients are refused.
        spared: Reason by worker that takes part all the same.
    """

    kept_out: Mapping[str, str]
    spared: Mapping[str, str]


def judge(
    before: Mapping[str, Standing],
    round_number: int,
    contributions: Iterable[Contribution],
    convictions: Iterable[Conviction],
    options: Reputation,
) -> dict[str, Standing]:
    """Take one committed round into account.

    Args:
        before: Standings after the round before, by worker.
        round_number: The round.
        contributions: What became of each gradient, as the commit record has it.
        convictions: Those that the commit record names.
        options: The job's settings.

    Returns:
        The standings after the round, sorted by worker. Who was not in it keeps
        its standing, but for time served.
    """
    after = dict(before)
    for contribution in contributions:
        standing = after.get(contribution.worker, Standing(worker=contribution.worker))
        after[contribution.worker] = _weigh(standing, contribution, round_number, options)
    for worker, standing in after.items():
        after[worker] = _settle(standing, round_number, options)
    for conviction in convictions:
        standing = after.get(conviction.worker, Standing(worker=conviction.worker))
        after[conviction.worker] = _convict(standing, conviction, round_number, options)
    return _remembered(after)


def exclude(
    before: Mapping[str, Standing], round_number: int, rollback: Rollback
) -> dict[str, Standing]:
    """Take a rollback into account: conduct is not undone, and who is excluded stays so.

    Args:
        before: Standings after the round before, by worker.
        round_number: Of the rollback.
        rollback: Names the workers.
    """
    after = dict(before)
    for worker in rollback.excluded:
        standing = after.get(worker, Standing(worker=worker))
        if standing.state is not StandingState.EXCLUDED:
            reason = f"{rollback.actor}: {rollback.reason}"[:WHY_CHARACTERS_MAX]
            entered = _enter(standing, StandingState.EXCLUDED, round_number)
            after[worker] = replace(entered, reason=reason)
    return _remembered(after)


def changes(
    before: Mapping[str, Standing], after: Mapping[str, Standing]
) -> tuple[StandingChange, ...]:
    """List the workers whose state changed, each with its reason, sorted by worker."""
    return tuple(
        StandingChange(
            worker=worker,
            before=_state_in(before, worker),
            after=after[worker].state,
            reason=_why(_state_in(before, worker), after[worker]),
        )
        for worker in sorted(after)
        if after[worker].state is not _state_in(before, worker)
    )


def quarantine(
    standings: Mapping[str, Standing], present: Collection[str], workers_least: int
) -> Quarantine:
    """Decide who is kept out of the next round.

    A round is never brought below what it needs: where too few would be left,
    the least suspicious of those in quarantine take part. Excluded workers never do.

    Args:
        standings: By worker.
        present: The live workers.
        workers_least: Workers that a round needs: its quorum, which is at least
            the rule's bound on n.
    """
    serving = sorted(
        (standings[worker] for worker in present if _is_confined(standings, worker)),
        key=lambda standing: (-standing.suspicion, -standing.quarantines, standing.worker),
    )
    excluded = {
        worker: f"excluded since round {standings[worker].since}: {standings[worker].reason}"
        for worker in sorted(present)
        if _state_in(standings, worker) is StandingState.EXCLUDED
    }
    others = len(present) - len(excluded)
    spare = max(0, others - workers_least)
    kept_out = excluded | {
        each.worker: f"in quarantine since round {each.since}: {each.reason}"
        for each in serving[:spare]
    }
    spared = {
        each.worker: f"in quarantine since round {each.since}, but takes part: "
        f"{others} workers are here and a round needs {workers_least}"
        for each in serving[spare:]
    }
    return Quarantine(kept_out, spared)


def term_rounds(quarantines: int, options: Reputation) -> int:
    """Return how many rounds a worker's quarantine lasts, its n-th so far."""
    doublings = min(max(0, quarantines - 1), DOUBLINGS_MAX)
    return int(options.quarantine_rounds * 2**doublings)


def _is_confined(standings: Mapping[str, Standing], worker: str) -> bool:
    return _state_in(standings, worker) is StandingState.QUARANTINE


def _state_in(standings: Mapping[str, Standing], worker: str) -> StandingState:
    standing = standings.get(worker)
    return StandingState.GOOD if standing is None else standing.state


def _weigh(
    before: Standing, contribution: Contribution, round_number: int, options: Reputation
) -> Standing:
    """Let one gradient move its worker's suspicion."""
    is_refused = contribution.verdict == Verdict.REFUSED
    offends = is_refused or not contribution.score <= options.outlier
    reason = before.reason
    if is_refused:
        reason = contribution.reason[:WHY_CHARACTERS_MAX]
    elif offends:
        reason = f"gradient {contribution.score:.3g} times as far (squared) as the median worker's"
    return replace(
        before,
        suspicion=before.suspicion + (float(offends) - before.suspicion) / options.memory_rounds,
        seen=round_number,
        rounds=before.rounds + 1,
        outvoted=before.outvoted + (contribution.verdict == Verdict.OUTVOTED),
        refused=before.refused + is_refused,
        offences=before.offences + offends,
        reason=reason,
    )


def _settle(standing: Standing, round_number: int, options: Reputation) -> Standing:
    """Begin or end a state where suspicion, or time served, says so."""
    match standing.state:
        case StandingState.QUARANTINE:
            if round_number - standing.since < term_rounds(standing.quarantines, options):
                return standing
            # Re-admitted, not acquitted: a few more offences, and it is back.
            released = replace(standing, suspicion=options.probation_above)
            return _enter(released, StandingState.PROBATION, round_number)
        case StandingState.PROBATION:
            if _is_for_quarantine(standing, options):
                return _enter(standing, StandingState.QUARANTINE, round_number)
            if standing.suspicion < options.clear_below:
                return _enter(standing, StandingState.GOOD, round_number)
        case StandingState.GOOD:
            if standing.suspicion > options.probation_above:
                return _enter(standing, StandingState.PROBATION, round_number)
    return standing


def _is_for_quarantine(standing: Standing, options: Reputation) -> bool:
    return options.quarantine_rounds > 0 and standing.suspicion > options.quarantine_above


def _convict(
    standing: Standing, conviction: Conviction, round_number: int, options: Reputation
) -> Standing:
    convicted = replace(standing, suspicion=1.0, reason=conviction.reason)
    if standing.state is StandingState.EXCLUDED:
        return convicted
    if options.quarantine_rounds > 0:
        return _enter(convicted, StandingState.QUARANTINE, round_number)
    return _enter(convicted, StandingState.PROBATION, round_number)


def _enter(standing: Standing, state: StandingState, round_number: int) -> Standing:
    is_confined_anew = state is StandingState.QUARANTINE and standing.state is not state
    return replace(
        standing,
        state=state,
        since=round_number,
        quarantines=standing.quarantines + is_confined_anew,
        was_suspected=standing.was_suspected or state is not StandingState.GOOD,
    )


def _why(before: StandingState, after: Standing) -> str:
    """Say in words why a worker's state changed."""
    match before, after.state:
        case StandingState.QUARANTINE, StandingState.PROBATION:
            return f"served its time; its last offence: {after.reason}"[:WHY_CHARACTERS_MAX]
        case _, StandingState.GOOD:
            return f"suspicion fell to {after.suspicion:.2f}"
        case _, StandingState.EXCLUDED:
            return after.reason
        case _:
            reason = f"suspicion rose to {after.suspicion:.2f}: {after.reason}"
            return reason[:WHY_CHARACTERS_MAX]


def _remembered(standings: Mapping[str, Standing]) -> dict[str, Standing]:
    """Keep at most `STANDINGS_MAX`, sorted by worker."""
    kept = dict(sorted(standings.items()))
    surplus = len(kept) - STANDINGS_MAX
    if surplus > 0:
        by_age = sorted(kept.values(), key=lambda each: (each.is_suspected, each.seen, each.worker))
        for standing in by_age[:surplus]:
            del kept[standing.worker]
    return kept
