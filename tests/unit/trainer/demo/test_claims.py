"""Every claim breaks on the fact that contradicts it, and on no other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pliska.aggregation import AttackName
from pliska.trainer.demo.claims import Claim, broken, judge, unjudged_reason
from pliska.trainer.demo.facts import CommittedRound, DemoFacts, Measurement
from pliska.trainer.demo.jobs import RunName
from pliska.trainer.demo.options import DemoOptions

Change = Callable[[DemoFacts], DemoFacts]

ROBUST = "robust within 2 points of the attack-free run"
MEAN = "mean at least 15 points below the attack-free run"
TAKEOVER = "take-over under the session timeout plus 1 s"
CONTIGUOUS = "rounds contiguous"
LOST = "no committed round lost to the leader's death"
FLAGGED = "every Byzantine worker flagged"
HONEST = "no honest worker cut for good"
ALIAS = "alias prod back on the good version"


def ending(run: RunName, accuracy: float) -> Change:
    return lambda facts: replace(
        facts, curves={**facts.curves, run: (Measurement(facts.options.rounds, accuracy),)}
    )


def takeover(**changes: Any) -> Change:
    def change(facts: DemoFacts) -> DemoFacts:
        assert facts.takeover is not None
        return replace(facts, takeover=replace(facts.takeover, **changes))

    return change


def rollback(**changes: Any) -> Change:
    def change(facts: DemoFacts) -> DemoFacts:
        assert facts.rollback is not None
        return replace(facts, rollback=replace(facts.rollback, **changes))

    return change


def changed(**changes: Any) -> Change:
    return lambda facts: replace(facts, **changes)


def rewritten(round_number: int) -> Change:
    """The log ends with another version at one round."""
    return lambda facts: replace(
        facts,
        committed=tuple(
            replace(each, digest="other") if each.round == round_number else each
            for each in facts.committed
        ),
    )


def test_all_claims_hold_when_everything_went_well(facts: DemoFacts) -> None:
    claims = judge(facts)
    assert [claim.name for claim in claims] == [
        ROBUST, MEAN, TAKEOVER, CONTIGUOUS, LOST, FLAGGED, HONEST, ALIAS
    ]  # fmt: skip
    assert all(claim.holds is True for claim in claims)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (ending(RunName.ROBUST, 0.9399), [ROBUST]),
        (ending(RunName.ROBUST, 0.94), []),
        (ending(RunName.ROBUST, 0.99), []),
        (ending(RunName.MEAN, 0.811), [MEAN]),
        (ending(RunName.MEAN, 0.81), []),
        (changed(curves={}), [ROBUST, MEAN]),
        (takeover(takeover_s=3.99), []),
        (takeover(takeover_s=4.0), [TAKEOVER]),
        (changed(takeover=None), [TAKEOVER, LOST]),
        (takeover(before=()), [LOST]),
        (rewritten(10), [LOST]),
        (rewritten(11), []),
        (lambda facts: replace(facts, committed=facts.committed[:-1]), [CONTIGUOUS]),
        (lambda facts: replace(facts, committed=facts.committed[:5]), [CONTIGUOUS, LOST]),
        (
            lambda facts: replace(facts, committed=facts.committed[:11] + facts.committed[12:]),
            [CONTIGUOUS],
        ),
        (
            lambda facts: replace(facts, committed=(*facts.committed, facts.committed[-1])),
            [CONTIGUOUS],
        ),
        (
            lambda facts: replace(facts, committed=(*facts.committed, CommittedRound(21, "x"))),
            [CONTIGUOUS],
        ),
        (changed(flagged=frozenset({"w7"})), [FLAGGED]),
        (changed(flagged=frozenset({"w1", "w7", "w8"})), []),
        (changed(suspected_at_end=frozenset({"w1"})), [HONEST]),
        (changed(suspected_at_end=frozenset()), []),
        (changed(rollback=None), [ALIAS]),
        (rollback(restored=2), [ALIAS]),
        (rollback(poisoned=1), [ALIAS]),
        (rollback(restored=3), [ALIAS]),
    ],
)
def test_claim_breaks_on_the_fact_against_it(
    facts: DemoFacts, change: Change, names: list[str]
) -> None:
    assert [claim.name for claim in broken(judge(change(facts)))] == names


def test_other_attack_is_reported_and_not_judged(other_facts: DemoFacts) -> None:
    ruined = ending(RunName.ROBUST, 0.5)(replace(other_facts, flagged=frozenset()))
    claims = {claim.name: claim for claim in judge(ruined)}
    unjudged = {name for name, claim in claims.items() if claim.holds is None}
    assert unjudged == {ROBUST, MEAN, FLAGGED, HONEST}
    assert not broken(claims.values())
    assert claims[ROBUST].detail == "50.0 % against 96.0 %"
    reason = unjudged_reason(other_facts.options)
    assert reason is not None
    assert "worker momentum and nearest-neighbour mixing" in reason


def test_failover_and_rollback_are_judged_under_every_attack(other_facts: DemoFacts) -> None:
    failed = replace(other_facts, takeover=None, rollback=None, committed=())
    assert [claim.name for claim in broken(judge(failed))] == [TAKEOVER, CONTIGUOUS, LOST, ALIAS]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (DemoOptions(), None),
        (DemoOptions(byzantine=0), "nobody attacks"),
        (DemoOptions(rule="trimmed-mean"), "claimed for sign-flip against multi-krum"),
        (DemoOptions(attack=AttackName.GAUSSIAN), "not for gaussian against multi-krum"),
        (DemoOptions(scale=3.0), "too few or too weak"),
        (DemoOptions(scale=3.1), None),
        (DemoOptions(workers=40), "too few or too weak"),
    ],
)
def test_claims_are_made_where_the_attack_can_ruin_a_mean(
    options: DemoOptions, reason: str | None
) -> None:
    said = unjudged_reason(options)
    assert said is None if reason is None else said is not None and reason in said


def test_details_of_many_missing_rounds_stay_short(facts: DemoFacts) -> None:
    claim: Claim = {c.name: c for c in judge(replace(facts, committed=()))}[CONTIGUOUS]
    assert (
        claim.detail == "0 of 20 committed; missing 1, 2, 3, 4, 5 and 15 more; out of order at none"
    )
