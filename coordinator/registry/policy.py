"""What may be promoted, and what "back" means: decisions as pure functions.

`decide` looks at an alias's history and the model's versions and says where the
alias goes, or why it does not move. It reads no store and moves nothing;
`moves.py` calls it and carries out what it says.

"Previous" is the newest older entry of the history whose version differs, is
READY, was not trained from a quarantined version, and was not itself rolled back
from. So one rollback after another only ever goes further back: a second one does
not return to what the first one left.
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
    candidates = previous_entries(history, versions)
    if len(candidates) < request.steps:
        return Decision(
            Verdict.REFUSED,
            f"its history has {len(candidates)} of the {request.steps} earlier versions asked for "
            "that are READY, not trained from a quarantined version and not rolled back from; "
            "name a version with --to",
        )
    entry = candidates[request.steps - 1]
    return Decision(Verdict.MOVE, f"generation {entry.gen} of its history", entry.to_version)


def previous_entries(
    history: Sequence[HistoryEntry], versions: Mapping[int, VersionRecord]
) -> list[HistoryEntry]:
    """Return where one rollback after another would go: the next one first."""
    found: list[HistoryEntry] = []
    left = {history[-1].to_version} if history else set()
    for entry in reversed(standing_entries(history)[:-1]):
        if entry.to_version not in left and _unfit(entry.to_version, versions) is None:
            found.append(entry)
            left.add(entry.to_version)
    return found


def standing_entries(history: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Return the entries that were not rolled back from, oldest first, the current one last.

    A rollback withdraws every version above the one it returns to, and all their
    older entries. A version that is promoted again later has a new entry, which stands.
    """
    standing: list[HistoryEntry] = []
    for entry in history:
        if entry.kind is MoveKind.ROLLBACK:
            withdrawn = _withdrawn_versions(standing, entry.to_version)
            standing = [older for older in standing if older.to_version not in withdrawn]
        standing.append(entry)
    return standing


def _withdrawn_versions(standing: Sequence[HistoryEntry], returned_to: int) -> set[int]:
    """Return the versions above the newest entry of `returned_to`; the top one if it has none."""
    versions = [entry.to_version for entry in standing]
    if returned_to not in versions:
        return set(versions[-1:])
    newest = len(versions) - 1 - versions[::-1].index(returned_to)
    return set(versions[newest + 1 :])


def tainted_by(version: int, versions: Mapping[int, VersionRecord]) -> int | None:
    """Return the nearest quarantined version that `version` was trained from, or None."""
    parent = versions[version].parent
    while parent is not None and parent in versions:
        if versions[parent].state is State.QUARANTINED:
            return parent
        parent = versions[parent].parent
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
