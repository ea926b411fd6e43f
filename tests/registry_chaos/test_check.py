"""The checker finds what it is there for: each rule broken in a made-up run."""

from dataclasses import replace
from typing import Any

import pytest
from registry_chaos.check import check
from registry_chaos.run import Run

from pliska.coordinator.registry import (
    Cause,
    EndedOperation,
    Ending,
    HistoryEntry,
    MoveKind,
    Operation,
    Phase,
    Wait,
)
from pliska.coordinator.registry.digest import NO_DIGEST

AT = "2031-05-04T03:02:01.000Z"


def entry(gen: int, kind: MoveKind, to: int, before: int | None) -> HistoryEntry:
    return HistoryEntry(
        namespace="default", model="digits", alias="prod", gen=gen, kind=kind,
        from_version=before, to_version=to, manifest_digest=NO_DIGEST, op_id=f"op{gen}",
        actor="ann", reason="", at=AT, prev_hash=NO_DIGEST,
    )  # fmt: skip


def ended(gen: int, op_id: str, ending: Ending = Ending.DONE) -> EndedOperation:
    operation = Operation(
        namespace="default", model="digits", alias="prod", op_id=op_id, kind=MoveKind.PROMOTE,
        phase=Phase.SWITCH, epoch=1, driver="ann", from_gen=gen - 1, from_version=None, version=1,
        manifest_digest=NO_DIGEST, canary=None, quarantines=(), wait=Wait.ALL, is_emergency=False,
        required=("n0",), timeout_s=3, deadline=AT, actor="ann", reason="",
    )  # fmt: skip
    is_aborted = ending is Ending.ABORTED
    return EndedOperation(
        ending, Cause.COMPLETE, None if is_aborted else gen, (), (), "", AT, operation
    )


def served(gen: int, version: int, at_s: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": "served", "node": "n0", "gen": gen, "version": version, "stale": "",
        "canary_gen": gen, "canary": None, "at_s": at_s, "until_s": at_s, **more,
    }  # fmt: skip


def collected(removed: int, *gens: int) -> dict[str, Any]:
    return {"kind": "collected", "removed": [removed], "gens": gens, "from_s": 5.0, "to_s": 6.0,
            "at_s": 6.0}  # fmt: skip


def of(kind: str, version: int, at_s: float, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "version": version, "at_s": at_s, "node": "n0", "stale": "",
            "gen": 9, **more}  # fmt: skip


def told(gen: int, outcome: str, to_s: float, by: str = "") -> dict[str, Any]:
    op_id = f"op{gen}"
    return {"kind": "told", "op_id": op_id, "by": by or op_id, "outcome": outcome, "gen": gen,
            "from_s": to_s, "to_s": to_s, "at_s": to_s}  # fmt: skip


GOOD = Run(
    history=(
        entry(1, MoveKind.PROMOTE, 1, None),
        entry(2, MoveKind.PROMOTE, 2, 1),
        entry(3, MoveKind.PROMOTE, 3, 2),
        entry(4, MoveKind.ROLLBACK, 2, 3),
    ),
    ended=tuple(ended(gen, f"op{gen}") for gen in (1, 2, 3, 4)),
    events=[served(1, 1, 1.0), told(2, "moved", 2.0), served(2, 2, 2.1), served(3, 3, 3.0)],
)


def with_events(*events: dict[str, Any]) -> Run:
    return replace(GOOD, events=[*GOOD.events, *events])


def test_a_good_run_is_good() -> None:
    assert check(GOOD) == []


@pytest.mark.parametrize(
    "events",
    [
        [collected(1, 4, 4)],
        [collected(3, 4, 7)],
        [of("served until", 1, 7.0, since_s=5.5, until_s=7.0), collected(1, 4, 4)],
        [of("served until", 1, 7.0, since_s=1.0, until_s=5.5), collected(1, 4, 4)],
        [of("served until", 1, 7.0, since_s=1.0, until_s=7.0, stale="x"), collected(1, 4, 4)],
        [of("pinned", 1, 5.5), collected(1, 4, 4)],
        [of("pinned", 1, 1.0), of("unpinning", 1, 5.5), collected(1, 4, 4)],
    ],
)
def test_what_nothing_needed_all_the_time_may_go(events: list[dict[str, Any]]) -> None:
    assert check(replace(GOOD, events=events)) == []


def test_a_rollback_may_pass_over_what_was_removed() -> None:
    past = replace(GOOD, history=(*GOOD.history[:3], entry(4, MoveKind.ROLLBACK, 1, 3)))
    assert check(replace(past, gone=frozenset({2}))) == []


@pytest.mark.parametrize(
    ("run", "rule"),
    [
        (with_events(served(4, 3, 4.0)), "I3"),
        (with_events(served(9, 3, 4.0)), "I3"),
        (with_events(served(4, 2, 4.0, canary=3)), "I3"),
        (with_events(served(2, 2, 4.0)), "I4"),
        (with_events({**served(1, 1, 0.5), "kind": "served until", "until_s": 2.05}), "I5"),
        (replace(GOOD, ended=(*GOOD.ended[:3], ended(4, "op4", Ending.ABORTED))), "I6"),
        (replace(GOOD, ended=GOOD.ended[:3]), "I6"),
        (replace(GOOD, history=(*GOOD.history, replace(GOOD.history[0], gen=5))), "I6"),
        (with_events(told(3, "refused", 4.0)), "op3 was told"),
        (with_events(told(3, "moved", 4.0, by="other")), "op3 was told"),
        (with_events(told(3, "joined", 4.0, by="op2")), "op3 was told"),
        (
            replace(GOOD, history=(*GOOD.history[:3], entry(4, MoveKind.ROLLBACK, 1, 3))),
            "I7",
        ),
        (replace(GOOD, damage=("digits:3: missing",)), "I9"),
        (with_events(collected(2, 4, 4)), "I9"),
        (with_events(collected(3, 4, 5)), "I9"),
        (with_events(of("pinned", 1, 1.0), collected(1, 4, 4)), "I9"),
        (with_events(of("pinned", 1, 3.0), of("unpinning", 1, 2.0), collected(1, 4, 4)), "I9"),
        (
            with_events(of("served until", 1, 7.0, since_s=4.0, until_s=7.0), collected(1, 4, 4)),
            "I9",
        ),
    ],
)
def test_each_broken_rule_is_found(run: Run, rule: str) -> None:
    assert any(violation.startswith(rule) for violation in check(run)), check(run)
