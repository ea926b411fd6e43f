"""Suspicion over rounds, the states that it leads to, and who is kept out."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.commit import Contribution
from pliska.coordinator.records.rollback import Rollback
from pliska.coordinator.records.standing import STANDINGS_MAX, Conviction, Standing, StandingState
from pliska.coordinator.rounds.reputation import changes, exclude, judge, quarantine, term_rounds
from pliska.coordinator.wire.encoding import encode
from pliska.coordinator.wire.job_tables import Reputation

OPTIONS = Reputation(memory_rounds=4.0, quarantine_rounds=5)
CONVICTION = Conviction(worker="w", offence="equivocation", evidence=bytes(32), reason="two roots")


def gradient(score: float = 1.0, verdict: str = "kept", reason: str = "") -> Contribution:
    return Contribution(
        worker="w",
        incarnation=bytes(16),
        lease=0,
        payload_root=bytes(32),
        verdict=verdict,
        weight=0.5,
        score=score,
        reason=reason,
    )


def after(
    contribution: Contribution | None,
    count: int,
    start: Standing | None = None,
    options: Reputation = OPTIONS,
) -> Standing:
    standings = {"w": start or Standing(worker="w")}
    first = standings["w"].seen + 1
    for round_number in range(first, first + count):
        contributions = [] if contribution is None else [contribution]
        standings = judge(standings, round_number, contributions, [], options)
        standings = {"w": replace(standings["w"], seen=round_number)}
    return standings["w"]


@pytest.mark.parametrize("score", [100.0, math.inf, 1e6])
def test_a_worker_that_keeps_lying_is_on_probation_and_then_in_quarantine(score: float) -> None:
    assert after(gradient(score), 1).state is StandingState.GOOD
    assert after(gradient(score), 3).state is StandingState.PROBATION
    assert after(gradient(score), 6).state is StandingState.QUARANTINE


def test_refused_content_counts_like_an_outlier() -> None:
    standing = after(gradient(verdict="refused", reason="NaN at column 3"), 3)
    assert standing.state is StandingState.PROBATION
    assert standing.reason == "NaN at column 3"


def test_one_bad_round_does_not_make_a_suspect() -> None:
    standing = after(gradient(1.0), 20, after(gradient(verdict="refused", reason="NaN"), 1))
    assert not standing.was_suspected
    assert standing.offences == 1
    assert standing.reason == "NaN"


def test_probation_ends_well_below_where_it_began() -> None:
    suspect = after(gradient(50.0), 3)
    assert suspect.state is StandingState.PROBATION
    wavering = after(gradient(1.0), 2, suspect)
    assert OPTIONS.clear_below < wavering.suspicion < OPTIONS.probation_above
    assert wavering.state is StandingState.PROBATION
    cleared = after(gradient(1.0), 10, suspect)
    assert cleared.state is StandingState.GOOD
    assert cleared.was_suspected


def test_time_served_leads_back_to_probation_and_clean_conduct_to_good_standing() -> None:
    confined = judge({}, 10, [], [CONVICTION], OPTIONS)
    assert confined["w"].state is StandingState.QUARANTINE
    still = judge(confined, 14, [], [], OPTIONS)
    assert still["w"].state is StandingState.QUARANTINE
    released = judge(confined, 15, [], [], OPTIONS)
    assert released["w"].state is StandingState.PROBATION
    (change,) = changes(still, released)
    assert change.reason == "served its time; its last offence: two roots"
    assert after(gradient(1.0), 10, released["w"]).state is StandingState.GOOD


def test_whoever_offends_again_after_release_is_back_soon_and_for_twice_as_long() -> None:
    released = judge(judge({}, 10, [], [CONVICTION], OPTIONS), 15, [], [], OPTIONS)["w"]
    again = after(gradient(99.0), 4, replace(released, seen=15))
    assert again.state is StandingState.QUARANTINE
    assert again.quarantines == 2
    assert [term_rounds(n, OPTIONS) for n in (1, 2, 3, 7, 8, 99)] == [5, 10, 20, 320, 320, 320]


def test_conviction_means_quarantine_at_once_and_its_reason_is_told() -> None:
    confined = judge({}, 3, [gradient(1.0)], [CONVICTION], OPTIONS)
    (change,) = changes({}, confined)
    assert (change.before, change.after) == (StandingState.GOOD, StandingState.QUARANTINE)
    assert "two roots" in change.reason
    assert confined["w"].quarantines == 1


def test_conviction_during_quarantine_begins_it_anew_but_is_no_second_one() -> None:
    once = judge({}, 3, [], [CONVICTION], OPTIONS)
    twice = judge(once, 6, [], [CONVICTION], OPTIONS)
    assert (twice["w"].since, twice["w"].quarantines) == (6, 1)


def test_nobody_is_kept_out_where_the_job_says_so() -> None:
    lenient = replace(OPTIONS, quarantine_rounds=0)
    assert after(gradient(99.0), 30, options=lenient).state is StandingState.PROBATION
    assert judge({}, 1, [], [CONVICTION], lenient)["w"].state is StandingState.PROBATION


def test_a_worker_that_took_no_part_keeps_its_standing() -> None:
    before = {"a": Standing(worker="a", suspicion=0.4, rounds=3)}
    assert judge(before, 9, [gradient()], [], OPTIONS)["a"] == before["a"]


def test_share_of_rounds_cut_is_the_price_that_a_worker_pays() -> None:
    standing = after(gradient(verdict="outvoted"), 3, after(gradient(), 1))
    assert (standing.rounds, standing.cut, standing.offences) == (4, 3, 0)
    assert (standing.outvoted, standing.refused) == (3, 0)
    assert standing.cut_share == 0.75
    standing = after(gradient(verdict="refused"), 1, standing)
    assert (standing.outvoted, standing.refused, standing.cut, standing.offences) == (3, 1, 4, 1)
    assert Standing(worker="w").cut_share == 0.0


def confined_workers(*suspicions: float) -> dict[str, Standing]:
    return {
        f"q{number}": Standing(
            worker=f"q{number}",
            state=StandingState.QUARANTINE,
            suspicion=suspicion,
            since=4,
            reason="liar",
        )
        for number, suspicion in enumerate(suspicions)
    }


def test_quarantine_never_leaves_a_round_with_fewer_workers_than_it_needs() -> None:
    standings = confined_workers(0.5, 0.9, 0.7)
    present = [*standings, "a", "b", "c"]
    decided = quarantine(standings, present, workers_least=4)
    assert set(decided.kept_out) == {"q1", "q2"}  # the worst ones first
    assert decided.kept_out["q1"] == "in quarantine since round 4: liar"
    assert decided.spared == {
        "q0": "in quarantine since round 4, but takes part: 6 workers are here and a round needs 4"
    }


@pytest.mark.parametrize("workers_least", [6, 7, 100])
def test_everybody_takes_part_where_everybody_is_needed(workers_least: int) -> None:
    standings = confined_workers(0.5, 0.9, 0.7)
    decided = quarantine(standings, [*standings, "a", "b", "c"], workers_least)
    assert decided.kept_out == {}
    assert set(decided.spared) == set(standings)


def test_absent_workers_in_quarantine_are_nobodys_concern() -> None:
    decided = quarantine(confined_workers(0.9), ["a", "b"], workers_least=1)
    assert (decided.kept_out, decided.spared) == ({}, {})


@given(
    scores=st.lists(st.floats(0, 1e6), max_size=40),
    present=st.integers(0, 9),
    least=st.integers(0, 9),
)
def test_standings_always_fit_their_encoding_and_rounds_their_bound(
    scores: list[float], present: int, least: int
) -> None:
    standings: dict[str, Standing] = {}
    for round_number, score in enumerate(scores, 1):
        standings = judge(standings, round_number, [gradient(score)], [], OPTIONS)
    if standings:
        assert 0 <= standings["w"].suspicion <= 1
        assert standings["w"].rounds == len(scores)
    here = ["w", *(f"a{number}" for number in range(present))]
    decided = quarantine(standings, here, least)
    assert len(here) - len(decided.kept_out) >= min(least, len(here))


def test_only_so_many_workers_are_remembered_and_suspects_last() -> None:
    crowd = {f"w{n}": Standing(worker=f"w{n}", seen=n) for n in range(STANDINGS_MAX)}
    suspect = Standing(worker="w0", state=StandingState.QUARANTINE, since=1, quarantines=9)
    kept = judge({**crowd, "w0": suspect}, 2, [gradient()], [], OPTIONS)
    assert len(kept) == STANDINGS_MAX
    assert "w0" in kept
    assert "w1" not in kept  # seen longest ago
    assert list(kept) == sorted(kept)


def test_longest_reason_fits() -> None:
    standings = judge({}, 1, [gradient(verdict="refused", reason="ä" * 5000)], [], OPTIONS)
    standings = judge(standings, 2, [], [replace(CONVICTION, reason="ö" * 200)], OPTIONS)
    assert encode(Annex(standings=tuple(standings.values())))
    (change,) = changes({}, standings)
    assert len(change.reason) <= 200


def test_an_excluded_worker_stays_out_for_good_however_few_are_left() -> None:
    rollback = Rollback(
        target=1, record_digest=bytes(32), actor="ann", reason="it lied", excluded=("w", "x")
    )
    standings = exclude({"w": Standing(worker="w", suspicion=0.5, rounds=9)}, 7, rollback)
    assert {each.state for each in standings.values()} == {StandingState.EXCLUDED}
    assert (standings["w"].since, standings["w"].rounds) == (7, 9)
    assert [change.reason for change in changes({}, standings)] == ["ann: it lied"] * 2
    assert exclude(standings, 9, rollback) == standings
    later = judge(standings, 1000, [], [CONVICTION], OPTIONS)
    assert later["w"].state is StandingState.EXCLUDED
    kept = quarantine(later, ["a", "w", "x"], 3)
    assert set(kept.kept_out) == {"w", "x"}
    assert kept.kept_out["x"] == "excluded since round 7: ann: it lied"
    assert not kept.spared


def test_excluded_workers_do_not_make_room_for_those_in_quarantine() -> None:
    rollback = Rollback(
        target=1, record_digest=bytes(32), actor="ann", reason="it lied", excluded=("x",)
    )
    confined = Standing(worker="w", state=StandingState.QUARANTINE, since=1, reason="NaN")
    standings = exclude({"w": confined}, 2, rollback)
    decided = quarantine(standings, ["a", "b", "w", "x"], 3)
    assert set(decided.kept_out) == {"x"}
    assert decided.spared["w"].endswith("3 workers are here and a round needs 3")
