"""`report.json` has what programs rely on, and the tables say what happened."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from pliska.trainer.demo.claims import judge
from pliska.trainer.demo.facts import DemoFacts
from pliska.trainer.demo.report import (
    claims_table,
    outcome_table,
    report_document,
    write_report,
)


def printed(table: Table) -> str:
    console = Console(width=150, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_report_has_every_promised_key(facts: DemoFacts, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(path, report_document(facts, judge(facts)))
    report = json.loads(path.read_text())
    promised = {
        "accuracy": {"robust": 0.95, "mean": 0.11, "clean": 0.96},
        "rounds": 20,
        "takeover_s": 1.5,
        "session_timeout_s": 3.0,
        "lost_rounds": 0,
        "flagged_workers": ["w7", "w8"],
        "byzantine_workers": ["w7", "w8"],
        "elapsed_s": 60.0,
        "holds": True,
    }
    assert {key: report[key] for key in promised} == promised
    assert (report["rollback"]["from"], report["rollback"]["to"]) == (2, 1)
    assert report["options"]["attack"] == "sign-flip"
    assert report["options"]["scale"] == 10
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_report_of_a_run_that_went_wrong_says_so(facts: DemoFacts) -> None:
    failed = replace(facts, takeover=None, rollback=None, curves={}, events=())
    document = report_document(failed, judge(failed))
    assert document["holds"] is False
    assert document["takeover_s"] is document["rollback"] is document["leader"] is None
    assert document["accuracy"] == {"robust": None, "mean": None, "clean": None}
    json.dumps(document, allow_nan=False)


def test_report_says_why_a_claim_is_not_judged(facts: DemoFacts, other_facts: DemoFacts) -> None:
    assert report_document(facts, judge(facts))["not_judged_because"] is None
    reason = report_document(other_facts, judge(other_facts))["not_judged_because"]
    assert "not for alie against multi-krum" in reason


def test_number_that_json_lacks_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report(tmp_path / "report.json", {"elapsed_s": float("nan")})


def test_table_says_what_happened(facts: DemoFacts) -> None:
    text = printed(outcome_table(facts))
    for part in (
        "2 of 8 workers attack: sign-flip, strength 10",
        "95.0 %",
        "11.0 %",
        "96.0 %",
        "20, 0 lost",
        "c2 leads 1.50 s after c1 was killed (session timeout 3 s)",
        "v1 → v2 (poisoned) → v1 by rollback in 0.50 s",
        "60 s, 2.90 GB at most",
    ):
        assert part in text


def test_table_of_a_run_that_went_wrong_can_be_printed(facts: DemoFacts) -> None:
    failed = replace(facts, takeover=None, rollback=None, curves={})
    assert "not measured" in printed(outcome_table(failed))
    assert printed(claims_table(judge(failed))).count("NO ") == 5


def test_claims_are_listed_with_their_verdicts(facts: DemoFacts, other_facts: DemoFacts) -> None:
    assert printed(claims_table(judge(facts))).count(" yes ") == 8
    assert printed(claims_table(judge(other_facts))).count("not judged") == 4
