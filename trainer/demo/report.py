"""What the demonstration leaves behind: a table for the person, `report.json` for programs.

It shows facts and verdicts and makes none. The chart is `chart`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from pliska.trainer.demo.claims import Claim, broken, unjudged_reason
from pliska.trainer.demo.facts import DemoFacts
from pliska.trainer.demo.jobs import RunName

SCHEMA_VERSION = 1
"""Grows when a field of `report.json` changes its meaning or goes away."""


def report_document(facts: DemoFacts, claims: Sequence[Claim]) -> dict[str, Any]:
    """Return the content of `report.json`; accuracies are shares of 1, times are seconds."""
    options, takeover, rollback = facts.options, facts.takeover, facts.rollback
    return {
        "schema_version": SCHEMA_VERSION,
        "holds": not broken(claims),
        "accuracy": {run.value: facts.accuracy(run) for run in RunName},
        "rounds": len(facts.committed),
        "takeover_s": takeover and round(takeover.takeover_s, 3),
        "session_timeout_s": options.session_timeout_s,
        "lost_rounds": len(facts.lost_rounds),
        "flagged_workers": sorted(facts.flagged),
        "suspected_at_end": sorted(facts.suspected_at_end),
        "byzantine_workers": list(options.byzantine_names),
        "leader": takeover
        and {
            "killed": takeover.killed,
            "successor": takeover.successor,
            "round": takeover.round,
        },
        "rollback": rollback
        and {
            "from": rollback.poisoned,
            "to": rollback.restored,
            "good": rollback.good,
            "duration_s": round(rollback.duration_s, 3),
        },
        "elapsed_s": round(facts.elapsed_s, 3),
        "memory_bytes_max": facts.memory_bytes_max,
        "options": {**asdict(options), "scale": options.attack_scale},
        "claims": [asdict(claim) for claim in claims],
        "not_judged_because": unjudged_reason(options),
        "events": [asdict(event) for event in facts.events],
        "curves": {
            run.value: [asdict(measurement) for measurement in facts.curves.get(run, ())]
            for run in RunName
        },
    }


def write_report(path: Path, document: dict[str, Any]) -> None:
    """Write `report.json` whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    part.replace(path)


def outcome_table(facts: DemoFacts) -> Table:
    """Return what happened, a line each."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _outcome(facts):
        table.add_row(name, text)
    return table


def claims_table(claims: Iterable[Claim]) -> Table:
    """Return every claim with its verdict."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("CLAIM", overflow="fold")
    table.add_column("HOLDS", no_wrap=True)
    table.add_column("SEEN", overflow="fold")
    for claim in claims:
        table.add_row(Text(claim.name), _verdict(claim), Text(claim.detail))
    return table


def _outcome(facts: DemoFacts) -> list[tuple[str, Text]]:
    options = facts.options
    rows = [
        ("attack", options.attack_text),
        (f"accuracy, {options.rule}", _percent(facts.accuracy(RunName.ROBUST))),
        ("accuracy, mean", _percent(facts.accuracy(RunName.MEAN))),
        ("accuracy, no attack", _percent(facts.accuracy(RunName.CLEAN))),
        ("rounds committed", f"{len(facts.committed)}, {len(facts.lost_rounds)} lost"),
        ("take-over", _takeover(facts)),
        ("Byzantine workers", _names(options.byzantine_names)),
        ("flagged", _names(sorted(facts.flagged))),
        ("alias prod", _rollback(facts)),
        ("took", f"{facts.elapsed_s:.0f} s, {facts.memory_bytes_max / 1e9:.2f} GB at most"),
    ]
    return [(name, Text(text)) for name, text in rows]


def _takeover(facts: DemoFacts) -> str:
    takeover = facts.takeover
    if takeover is None:
        return "none"
    return (
        f"{takeover.successor} leads {takeover.takeover_s:.2f} s after {takeover.killed} was "
        f"killed (session timeout {facts.options.session_timeout_s:g} s)"
    )


def _rollback(facts: DemoFacts) -> str:
    rollback = facts.rollback
    if rollback is None:
        return "no rollback"
    return (
        f"v{rollback.good} → v{rollback.poisoned} (poisoned) → "
        f"v{rollback.restored} by rollback in {rollback.duration_s:.2f} s"
    )


def _verdict(claim: Claim) -> Text:
    match claim.holds:
        case True:
            return Text("yes", "green")
        case False:
            return Text("NO", "bold red")
        case None:
            return Text("not judged", "dim")


def _percent(accuracy: float | None) -> str:
    return "not measured" if accuracy is None else f"{100 * accuracy:.1f} %"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
