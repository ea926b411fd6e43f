"""What the demonstration claims, and whether the facts bear it out.

Pure. A claim that does not apply, because another attack or rule was chosen
than the one it is made for, is reported with its numbers and not judged.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from pliska.aggregation import AttackName
from pliska.trainer.demo.facts import DemoFacts
from pliska.trainer.demo.jobs import RunName
from pliska.trainer.demo.options import DemoOptions

ROBUST_BELOW_CLEAN_POINTS_MAX = 2.0
MEAN_BELOW_CLEAN_POINTS_MIN = 15.0
TAKEOVER_GRACE_S = 1.0
"""What a takeover may take beyond the session timeout."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and its verdict.

    Attributes:
        name: The claim in a few words.
        holds: None when it is only reported; `unjudged_reason` says why.
        detail: The numbers.
    """

    name: str
    holds: bool | None
    detail: str


def judge(facts: DemoFacts) -> tuple[Claim, ...]:
    """Return every claim with its verdict, in the order in which they are shown."""
    return (
        _robust_accuracy(facts),
        _mean_ruined(facts),
        _takeover_in_time(facts),
        _rounds_contiguous(facts),
        _no_round_lost(facts),
        _byzantine_flagged(facts),
        _honest_not_cut(facts),
        _rolled_back(facts),
    )


def broken(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Return the claims that do not hold."""
    return tuple(claim for claim in claims if claim.holds is False)


def unjudged_reason(options: DemoOptions) -> str | None:
    """Say why accuracy and suspicion are reported and not judged; None when they are judged."""
    if options.byzantine == 0:
        return "nobody attacks"
    if options.rule != "multi-krum" or options.attack is not AttackName.SIGN_FLIP:
        return (
            f"accuracy and suspicion are claimed for sign-flip against multi-krum, not for "
            f"{options.attack} against {options.rule}{_what_helps(options.attack)}"
        )
    if not _mean_runs_uphill(options):
        return "the attackers are too few or too weak to turn a mean round"
    return None


def _mean_runs_uphill(options: DemoOptions) -> bool:
    """Whether what is flipped outweighs what is honest, so that a mean ascends."""
    honest = options.workers - options.byzantine
    return (options.attack_scale or 0.0) * options.byzantine > honest


def _what_helps(attack: AttackName) -> str:
    if not attack.is_omniscient:
        return ""
    return (
        "; it hides among the honest gradients, which takes worker momentum and "
        "nearest-neighbour mixing to withstand: this demonstration uses neither"
    )


def _robust_accuracy(facts: DemoFacts) -> Claim:
    name = f"robust within {ROBUST_BELOW_CLEAN_POINTS_MAX:g} points of the attack-free run"
    return _below_clean(facts, RunName.ROBUST, name, 0.0, ROBUST_BELOW_CLEAN_POINTS_MAX)


def _mean_ruined(facts: DemoFacts) -> Claim:
    name = f"mean at least {MEAN_BELOW_CLEAN_POINTS_MIN:g} points below the attack-free run"
    return _below_clean(facts, RunName.MEAN, name, MEAN_BELOW_CLEAN_POINTS_MIN, 100.0)


def _below_clean(facts: DemoFacts, run: RunName, name: str, least: float, most: float) -> Claim:
    clean, other = facts.accuracy(RunName.CLEAN), facts.accuracy(run)
    if clean is None or other is None:
        return Claim(name, holds=False, detail=f"{run} or attack-free run was not measured")
    # A run better than the attack-free one is 0 points below it.
    points = max(0.0, round(100 * (clean - other), 6))
    detail = f"{100 * other:.1f} % against {100 * clean:.1f} %"
    return _judged(facts, name, least <= points <= most, detail)


def _takeover_in_time(facts: DemoFacts) -> Claim:
    limit_s = facts.options.session_timeout_s + TAKEOVER_GRACE_S
    name = f"take-over under the session timeout plus {TAKEOVER_GRACE_S:g} s"
    if facts.takeover is None:
        return Claim(name, holds=False, detail="no standby took over")
    took_s = facts.takeover.takeover_s
    return Claim(name, took_s < limit_s, f"{took_s:.2f} s, limit {limit_s:g} s")


def _rounds_contiguous(facts: DemoFacts) -> Claim:
    rounds = [committed.round for committed in facts.committed]
    wanted = list(range(1, facts.options.rounds + 1))
    detail = f"{len(rounds)} of {facts.options.rounds} committed"
    if rounds != wanted:
        missing = sorted(set(wanted) - set(rounds))
        odd = [later for earlier, later in pairwise(rounds) if later != earlier + 1]
        detail += f"; missing {_some(missing)}; out of order at {_some(odd)}"
    return Claim("rounds contiguous", rounds == wanted, detail)


def _no_round_lost(facts: DemoFacts) -> Claim:
    name = "no committed round lost to the leader's death"
    if facts.takeover is None:
        return Claim(name, holds=False, detail="no standby took over")
    known = len(facts.takeover.before)
    lost = facts.lost_rounds
    if not known:
        return Claim(name, holds=False, detail="no round was known to be committed at the kill")
    detail = f"all {known} known at the kill are in the log" if not lost else f"lost {_some(lost)}"
    return Claim(name, not lost, detail)


def _byzantine_flagged(facts: DemoFacts) -> Claim:
    byzantine = facts.options.byzantine_names
    missed = [worker for worker in byzantine if worker not in facts.flagged]
    flagged = f"flagged {_some(sorted(facts.flagged))}"
    detail = f"{flagged}; not {_some(missed)}" if missed else flagged
    return _judged(facts, "every Byzantine worker flagged", not missed, detail)


def _honest_not_cut(facts: DemoFacts) -> Claim:
    cut = sorted(facts.suspected_at_end - set(facts.options.byzantine_names))
    detail = f"still suspected at the end: {_some(cut)}"
    return _judged(facts, "no honest worker cut for good", not cut, detail)


def _rolled_back(facts: DemoFacts) -> Claim:
    name = "alias prod back on the good version"
    rollback = facts.rollback
    if rollback is None:
        return Claim(name, holds=False, detail="no rollback was made")
    holds = rollback.restored == rollback.good != rollback.poisoned
    return Claim(
        name, holds, f"v{rollback.poisoned} → v{rollback.restored}, good is v{rollback.good}"
    )


def _judged(facts: DemoFacts, name: str, holds: bool, detail: str) -> Claim:
    """Make a claim about what the attack came to, which is not judged under every attack."""
    return Claim(name, holds if unjudged_reason(facts.options) is None else None, detail)


def _some(items: Iterable[object]) -> str:
    listed = [str(item) for item in items]
    shown = ", ".join(listed[:5])
    return f"{shown} and {len(listed) - 5} more" if len(listed) > 5 else shown or "none"
