"""Every worker's fate, with what would have changed it."""

from typing import Any

import pytest
from training.records import contribution, record
from training.signed import kept_receipt

from pliska.coordinator.audit.explanation import Explanation, explain
from pliska.coordinator.audit.proof import Outcome
from pliska.coordinator.records.annex import Annex
from pliska.coordinator.records.attendance import Attendance, arrivals
from pliska.coordinator.records.standing import Standing, StandingState
from pliska.coordinator.wire import ReplyCode
from pliska.coordinator.wire.job_tables import Reputation

CONFINED = Standing(
    worker="w4", state=StandingState.QUARANTINE, since=3, quarantines=2, reason="lied"
)


LATE = "arrived 0.412 s after round 5 closed"


def explained(*contributions: Any, receipts: Any = (), **changes: Any) -> dict[str, Explanation]:
    annex = Annex(standings=(CONFINED, Standing(worker="w7")))
    told = explain(
        record(5, contributions, **changes), annex, receipts, Reputation(quarantine_rounds=10)
    )
    assert [each.worker for each in told] == sorted(each.worker for each in told)
    return {each.worker: each for each in told}


def test_every_worker_that_the_round_knew_is_explained_once() -> None:
    told = explained(
        contribution("w1", 5),
        contribution("w2", 5, verdict="refused", reason="holds nan"),
        receipts=[
            kept_receipt("w3", ReplyCode.STALE_ROUND, "arrived 0.412 s after round 5 closed")
        ],
        attendance=Attendance(
            arrivals=arrivals({"w1": 0.25}), absent=("w3", "w5"), excluded=("w4",)
        ),
    )
    assert {worker: each.outcome for worker, each in told.items()} == {
        "w1": Outcome.COUNTED,
        "w2": Outcome.REFUSED,
        "w3": Outcome.LATE,  # its receipt knows more than the record
        "w4": Outcome.QUARANTINED,
        "w5": Outcome.ABSENT,
        "w7": Outcome.ABSENT,
    }
    assert told["w1"].arrived_s == 0.25
    assert (told["w2"].weight, told["w2"].reason) == (None, "holds nan")
    assert told["w3"].change == "arriving 0.412 s sooner"
    assert told["w4"].reason == "in quarantine since round 3: lied"
    assert told["w4"].change == "nothing: its time in quarantine ends with round 23"
    assert told["w5"].change == "a gradient before the round closed"
    assert told["w7"].reason == "it was not there when the round opened"


@pytest.mark.parametrize(
    ("rule", "changes", "said"),
    [
        ("krum", {"margin": 0.5}, "a Krum score 100% higher"),
        ("multi-krum", {"verdict": "outvoted", "margin": -1.0}, "a Krum score 50% lower"),
        (
            "mda",
            {"verdict": "outvoted", "margin": -0.25},
            "a largest distance to the chosen gradients 20% lower",
        ),
        ("trimmed-mean", {"margin": 0.2}, "1.20 times an equal share"),
        ("trimmed-mean", {"verdict": "outvoted", "margin": -1.0}, "in at least one coordinate"),
        ("centered-clipping", {"margin": -0.4}, "a distance 40% shorter"),
        ("kardam", {"verdict": "outvoted"}, "differs less from its last one"),
        ("smea", {"verdict": "outvoted", "margin": -1.0}, "nearer to those of the other workers"),
        ("mean", {}, "-"),
        ("mean", {"lag": 2, "damping": 0.58}, "2 versions before: for its age it counted at 0.58"),
    ],
)
def test_what_would_have_changed_it_is_said_in_the_rules_own_terms(
    rule: str, changes: dict[str, Any], said: str
) -> None:
    assert said in explained(contribution("w1", 5, **changes), rule=rule)["w1"].change


def test_broken_off_transfer_and_quarantine_are_told_from_late_arrival() -> None:
    told = explained(
        receipts=[
            kept_receipt("w1", ReplyCode.STALE_ROUND, "the round closed before it was complete"),
            kept_receipt("w2", ReplyCode.QUARANTINED, "in quarantine since round 3: lied"),
        ]
    )
    assert told["w1"].change == "arriving whole before the round closed"
    assert told["w2"].outcome is Outcome.QUARANTINED
    assert told["w2"].change == "nothing: its time in quarantine ends by itself"
