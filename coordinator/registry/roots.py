"""Which versions must stay, and why: the roots of garbage collection.

Pure: `collection` reads the view, asks here, and removes what has no reason to stay.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pliska.coordinator.registry.aliases import AliasState
from pliska.coordinator.registry.digest import Digest
from pliska.coordinator.registry.document import moment
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.operations import Operation
from pliska.coordinator.registry.versions import State, VersionRecord

UPLOAD_AGE_MAX = timedelta(days=1)
"""A registration that is not finished after so long was left by a crash."""
REMOVABLE = frozenset({State.READY, State.DEPRECATED, State.QUARANTINED, State.DELETING})


@dataclass(frozen=True, slots=True)
class Retention:
    """What an operator wants to keep besides what is in use.

    Attributes:
        keep_last: So many of each model's newest versions; None keeps all.
        age_min: Versions younger than this stay.
        history: So many of the newest moves of each alias keep what they pointed at,
            so that a rollback finds it.
    """

    keep_last: int | None = None
    age_min: timedelta = timedelta(0)
    history: int = 10


@dataclass(frozen=True, slots=True)
class ModelView:
    """All that speaks for a version of one model.

    Attributes:
        versions: By number, oldest first.
        aliases: With their histories.
        operations: The open ones.
        loaded: Manifests that serving nodes hold.
        pins: Why a version was pinned, by its number.
    """

    versions: Mapping[int, VersionRecord]
    aliases: tuple[AliasState, ...] = ()
    operations: tuple[Operation, ...] = ()
    loaded: frozenset[Digest] = frozenset()
    pins: Mapping[int, str] = field(default_factory=dict)


def reasons_to_stay(now: datetime, view: ModelView, retention: Retention) -> dict[int, str | None]:
    """Say of each version that could be removed why it stays; None: nothing speaks for it.

    Args:
        now: In UTC.
        view: Of one moment.
        retention: What the operator wants.
    """
    used = dict(_uses(view, retention))
    removable = {n: each for n, each in view.versions.items() if each.state in REMOVABLE}
    return {
        number: used.get(number) or _wanted(now, number, record, view, retention)
        for number, record in removable.items()
    }


def uploads(now: datetime, versions: Iterable[VersionRecord]) -> tuple[VersionRecord, ...]:
    """Return the versions whose files are being stored now: nobody knows which those are yet."""
    return tuple(
        record
        for record in versions
        if record.state is State.PENDING and _age(now, record) <= UPLOAD_AGE_MAX
    )


def _uses(view: ModelView, retention: Retention) -> Iterator[tuple[int, str]]:
    """Say which versions are in use and by what; of several uses of one, the last counts."""
    for number, reason in view.pins.items():
        yield number, f"pinned: {reason}" if reason else "pinned"
    for alias in view.aliases:
        yield from _past_targets(alias, retention.history)
    for number, record in view.versions.items():
        if record.manifest_digest in view.loaded:
            yield number, "loaded by a serving node"
    for operation in view.operations:
        for version in (operation.from_version, operation.version, operation.target):
            if version is not None:
                yield version, f"part of the open operation {operation.op_id}"
    for alias in view.aliases:
        for entry in alias.history[-1:]:
            yield from _targets(entry, f"what {alias.alias!r} points at")


def _past_targets(alias: AliasState, count: int) -> Iterator[tuple[int, str]]:
    for entry in alias.history[-count:] if count else ():
        yield from _targets(entry, f"in the history of {alias.alias!r}")


def _targets(entry: HistoryEntry, reason: str) -> Iterator[tuple[int, str]]:
    yield entry.to_version, reason
    if entry.canary is not None:
        yield entry.canary.version, reason


def _wanted(
    now: datetime, number: int, record: VersionRecord, view: ModelView, retention: Retention
) -> str | None:
    if record.state is State.DELETING:
        return None
    if retention.keep_last is None:
        return "no version is to go"
    newest = sorted(n for n, each in view.versions.items() if each.state in REMOVABLE)
    if number in newest[len(newest) - retention.keep_last :]:
        return f"one of the newest {retention.keep_last}"
    if _age(now, record) < retention.age_min:
        return "too young"
    return None


def _age(now: datetime, record: VersionRecord) -> timedelta:
    return now - moment(record.registered_at)
