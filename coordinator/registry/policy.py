"""What may be promoted, and what "back" means: decisions as pure functions.

`decide` looks at an alias's history and the model's versions and says where the
alias goes, or why it does not move. It reads no store and moves nothing;
`moves.py` calls it and carries out what it says.

"Previous" is the newest older entry of the history whose version differs, is
READY, was not trained from a quarantined version, was not itself rolled back
from, and could be served by every node. So one rollback after another only ever
goes further back: a second one does not return to what the first one left.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pliska.coordinator.registry.document import moment
from pliska.coordinator.registry.history import HistoryEntry
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
    history: Sequence[HistoryEntry],
    versions: Mapping[int, VersionRecord],
    request: Request,
    failed: Collection[int] = (),
) -> Decision:
    """Say where the request takes the alias, or why it does not move.

    Args:
        history: All moves of the alias, oldest first; empty where there is no alias.
        versions: All versions of the model by number.
        request: What is asked for.
        failed: Generations that some node could not serve.
    """
    if request.expect_gen is not None and request.expect_gen != len(history):
        return _unexpected_gen(history, request.expect_gen)
    if isinstance(request, PromoteRequest):
        return decide_promote(history, versions, request)
    return decide_rollback(history, versions, request, failed)


def decide_promote(
    history: Sequence[HistoryEntry],
    versions: Mapping[int, VersionRecord],
    request: PromoteRequest,
) -> Decision:
    """Say whether the alias may point at `request.version`; the generation is as expected.

    For a canary the version that is returned is the one that the alias goes on to point at.
    """
    decision = _target(versions, request.version, allow_deprecated=request.allow_deprecated)
    if decision.verdict is not Verdict.MOVE:
        return decision
    if request.canary_percent is not None:
        return _canary(history, request.version, request.canary_percent)
    is_renewal = request.valid_for_s is not None
    return decision if is_renewal else _unless_there(history, decision)


def decide_rollback(
    history: Sequence[HistoryEntry],
    versions: Mapping[int, VersionRecord],
    request: RollbackRequest,
    failed: Collection[int] = (),
) -> Decision:
    """Say which version the alias goes back to; the generation is as expected.

    While a canary runs, the first step back is to end it.
    """
    if not history:
        return Decision(Verdict.NOT_FOUND, "there is no such alias, so nothing to roll back")
    to = request.to
    if request.at is not None:
        then = [entry for entry in history if moment(entry.at) <= request.at]
        if not then:
            return Decision(Verdict.NOT_FOUND, f"the alias was not there yet at {request.at}")
        to = then[-1].to_version
    if to is not None:
        return _unless_there(history, _target(versions, to, allow_deprecated=True))
    withdrawn = history[-1:] if history[-1].canary is not None else []
    candidates = [*withdrawn, *previous_entries(history, versions, failed)]
    if len(candidates) < request.steps:
        return Decision(
            Verdict.REFUSED,
            f"its history has {len(candidates)} of the {request.steps} earlier versions asked for "
            "that are READY, not trained from a quarantined version, not rolled back from and "
            "served by every node; name a version with --to",
        )
    entry = candidates[request.steps - 1]
    return Decision(Verdict.MOVE, f"generation {entry.gen} of its history", entry.to_version)


def previous_entries(
    history: Sequence[HistoryEntry],
    versions: Mapping[int, VersionRecord],
    failed: Collection[int] = (),
) -> list[HistoryEntry]:
    """Return where one rollback after another would go: the next one first."""
    found: list[HistoryEntry] = []
    left = {history[-1].to_version} if history else set()
    for entry in reversed(standing_entries(history)[:-1]):
        is_fit = entry.gen not in failed and _unfit(entry.to_version, versions) is None
        if entry.to_version not in left and is_fit:
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
        if entry.kind.goes_back:
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
    versions: Mapping[int, VersionRecord], version: int, *, allow_deprecated: bool
) -> Decision:
    if version not in versions:
        return Decision(Verdict.NOT_FOUND, f"there is no version {version}")
    unfit = _unfit(version, versions, allow_deprecated=allow_deprecated)
    if unfit is not None:
        return Decision(Verdict.REFUSED, unfit)
    return Decision(Verdict.MOVE, f"version {version} as asked for", version)


def _unless_there(history: Sequence[HistoryEntry], decision: Decision) -> Decision:
    is_there = history and history[-1].to_version == decision.version
    if decision.verdict is Verdict.MOVE and is_there and history[-1].canary is None:
        reason = f"the alias points at version {decision.version} already"
        return Decision(Verdict.STAY, reason, decision.version)
    return decision


def _canary(history: Sequence[HistoryEntry], version: int, percent: int) -> Decision:
    """Say whether a version that may be pointed at may have a part of the requests."""
    if not history:
        return Decision(
            Verdict.REFUSED, "the alias points at nothing yet that a canary could stand beside"
        )
    newest = history[-1]
    if newest.to_version == version:
        return Decision(Verdict.REFUSED, f"the alias points at version {version} already")
    runs = newest.canary
    if runs is not None and (runs.version, runs.percent) == (version, percent):
        reason = f"version {version} has {percent} % of the requests already"
        return Decision(Verdict.STAY, reason, newest.to_version)
    return Decision(Verdict.MOVE, f"{percent} % of the requests", newest.to_version)


def _unfit(
    version: int, versions: Mapping[int, VersionRecord], *, allow_deprecated: bool = False
) -> str | None:
    """Say why no alias may point at the version; None when one may."""
    record = versions.get(version)
    if record is None:
        return f"version {version} is gone"
    is_allowed = allow_deprecated and record.state is State.DEPRECATED
    if record.state is not State.READY and not is_allowed:
        why = f" ({record.state_reason})" if record.state_reason else ""
        hint = "; only READY versions may be pointed at"
        if record.state is State.DEPRECATED:
            hint = "; it takes --allow-deprecated to point an alias at it"
        return f"version {version} is {record.state}{why}{hint}"
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
