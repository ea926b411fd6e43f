"""What may be promoted, and what "back" means: decisions as pure functions.

`decide` looks at an alias's history and the model's versions and says where the
alias goes, or why it does not move. It reads no store and moves nothing;
`moves.py` calls it and carries out what it says.

"Previous" is the newest older entry of the history whose version differs, is
READY, was not trained from a quarantined version, and was not itself rolled back
from. A rollback withdraws every version that the alias pointed at after the entry
it returned to, so one rollback after another only ever goes further back: a
second rollback does not return to what the first one left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.aliases import HistoryEntry, MoveKind
from pliska.coordinator.registry.requests import PromoteRequest, Request, RollbackRequest
from pliska.coordinator.registry.versions import State, VersionRecord


class Verdict(StrEnum):
    """What becomes of a request to move an alias."""

    MOVE = "move"
    STAY = "stay"
    REFUSED = "refused"
    CONFLICT = "conflict"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its reason.

    Attributes:
        verdict: What to do.
        reason: Why, for a person.
        version: Where the alias goes or stays; 0 for the other verdicts.
    """

    verdict: Verdict
    reason: str
    version: int = 0


def decide(
    history: Sequence[HistoryEntry], versions: Mapping[int, VersionRecord], request: Request
) -> Decision:
    """Say where the request takes the alias, or why it does not move.

    Args:
        history: All moves of the alias, oldest first; empty where there is no alias.
        versions: All versions of the model by number.
        request: What is asked for.
    """
    if request.expect_gen is not None and request.expect_gen != len(history):
        return _unexpected_gen(history, request.expect_gen)
    if isinstance(request, PromoteRequest):
        return decide_promote(history, versions, request)
    return decide_rollback(history, versions, request)


def decide_promote(
    history: Sequence[HistoryEntry],
    versions: Mapping[int, VersionRecord],
    request: PromoteRequest,
) -> Decision:
    """Say whether the alias may point at `request.version`; the generation is as expected."""
    return _target(history, versions, request.version)


def decide_rollback(
    history: Sequence[HistoryEntry],
    versions: Mapping[int, VersionRecord],
    request: RollbackRequest,
) -> Decision:
    """Say which version the alias goes back to; the generation is as expected."""
    if not history:
        return Decision(Verdict.NOT_FOUND, "there is no such alias, so nothing to roll back")
    if request.to is not None:
        return _target(history, versions, request.to)
    gen = len(history)
    for step in range(request.steps):
        found = _previous_gen(history, versions, gen)
        if found is None:
            return Decision(
                Verdict.REFUSED,
                f"its history has {step} of the {request.steps} earlier versions asked for that are "
                "READY, not trained from a quarantined version and not rolled back from; name a "
                "version with --to",
            )
        gen = found
    return Decision(Verdict.MOVE, f"generation {gen} of the history", history[gen - 1].to_version)


def previous_gens(
    history: Sequence[HistoryEntry], versions: Mapping[int, VersionRecord]
) -> list[int]:
    """Return the generations that successive rollbacks would return to, next one first."""
    gens = []
    gen = _previous_gen(history, versions, len(history))
    while gen is not None:
        gens.append(gen)
        gen = _previous_gen(history, versions, gen)
    return gens


def withdrawn_gens(history: Sequence[HistoryEntry]) -> dict[int, int]:
    """Return which entries were rolled back from: generation to that of the rollback.

    An entry counts when its version was pointed at, then or later, between the
    entry that a rollback returned to and the rollback. A version that is promoted
    again afterwards has a new entry, which does not count.
    """
    withdrawn: dict[int, int] = {}
    for rollback in history:
        if rollback.kind is not MoveKind.ROLLBACK:
            continue
        older = history[: rollback.gen - 1]
        returned_to = max((e.gen for e in older if e.to_version == rollback.to_version), default=0)
        passed = older[returned_to:] if returned_to else older[-1:]
        versions = {entry.to_version for entry in passed}
        for entry in older:
            if entry.to_version in versions:
                withdrawn[entry.gen] = rollback.gen
    return withdrawn


def tainted_by(version: int, versions: Mapping[int, VersionRecord]) -> int | None:
    """Return the nearest quarantined version that `version` was trained from, or None."""
    parent = versions[version].parent
    while parent is not None and parent in versions:
        if versions[parent].state is State.QUARANTINED:
            return parent
        parent = versions[parent].parent
    return None


def _previous_gen(
    history: Sequence[HistoryEntry], versions: Mapping[int, VersionRecord], gen: int
) -> int | None:
    """Return the newest eligible generation before `gen`."""
    withdrawn = withdrawn_gens(history)
    current = history[gen - 1].to_version if gen else None
    for entry in reversed(history[: max(gen - 1, 0)]):
        if (
            entry.to_version != current
            and entry.gen not in withdrawn
            and _unfit(entry.to_version, versions) is None
        ):
            return entry.gen
    return None


def _target(
    history: Sequence[HistoryEntry], versions: Mapping[int, VersionRecord], version: int
) -> Decision:
    if version not in versions:
        return Decision(Verdict.NOT_FOUND, f"there is no version {version}")
    unfit = _unfit(version, versions)
    if unfit is not None:
        return Decision(Verdict.REFUSED, unfit)
    if history and history[-1].to_version == version:
        return Decision(Verdict.STAY, f"the alias points at version {version} already", version)
    return Decision(Verdict.MOVE, f"version {version} as asked for", version)


def _unfit(version: int, versions: Mapping[int, VersionRecord]) -> str | None:
    """Say why no alias may point at the version; None when one may."""
    record = versions.get(version)
    if record is None:
        return f"version {version} is gone"
    if record.state is not State.READY:
        why = f" ({record.state_reason})" if record.state_reason else ""
        return f"version {version} is {record.state}{why}; only READY versions may be pointed at"
    tainted = tainted_by(version, versions)
    if tainted is not None:
        return f"version {version} was trained from version {tainted}, which is QUARANTINED"
    return None


def _unexpected_gen(history: Sequence[HistoryEntry], expect_gen: int) -> Decision:
    if not history:
        return Decision(Verdict.CONFLICT, f"no such alias yet, expected generation {expect_gen}")
    newest = history[-1]
    return Decision(
        Verdict.CONFLICT,
        f"it is at generation {newest.gen} (version {newest.to_version}, {newest.kind} by "
        f"{newest.actor}, operation {newest.op_id}), not at {expect_gen}",
    )
