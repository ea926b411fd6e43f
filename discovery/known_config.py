"""What a process knows of the configuration, and how an answer of the store changes it.

Pure: no clock, no I/O, no threads. `config_view` keeps one of these.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pliska.discovery.config_store import key_of
from pliska.discovery.errors import ConfigFormatError
from pliska.discovery.setting import ChangeKind, Setting, setting_from_bytes
from pliska.locks import Listing, Record, Revision

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """Something stored under a key that is not handed out."""

    since_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A setting, and how far it can be believed.

    Attributes:
        setting: The last good one.
        age_s: How long ago it was last confirmed by the store.
        is_stale: Whether there may be a newer one.
        reason: Why there may be; empty when it is not stale.
    """

    setting: Setting
    age_s: float
    is_stale: bool
    reason: str


@dataclass(frozen=True, slots=True)
class KnownConfig:
    """The configuration as far as it is known.

    Attributes:
        settings: The last good setting of each key.
        seen: The record behind each key by its creation and modification, which
            tells a record that was deleted and made again from the one before.
        undeliverable: What the store holds now for keys whose last good setting
            is older, or that have none.
        confirmed_s: When the store last confirmed all this; None if it never did.
        reason: Why it is not confirmed now; empty when it is.
    """

    settings: Mapping[str, Setting] = field(default_factory=lambda: _NOTHING)
    seen: Mapping[str, tuple[Revision, Revision]] = field(default_factory=lambda: _NOTHING)
    undeliverable: Mapping[str, Undeliverable] = field(default_factory=lambda: _NOTHING)
    confirmed_s: float | None = None
    reason: str = "the store has not answered yet"

    def reading(self, now_s: float, key: str) -> Reading | None:
        """What is known of a key; None when nothing is."""
        setting = self.settings.get(key)
        if setting is None:
            return None
        confirmed_s = now_s if self.confirmed_s is None else self.confirmed_s
        age_s = max(0.0, now_s - confirmed_s)
        problem = self.undeliverable.get(key)
        if problem is not None:
            return Reading(setting, max(age_s, now_s - problem.since_s), True, problem.reason)
        return Reading(setting, age_s, bool(self.reason), self.reason)


def from_snapshot(now_s: float, settings: Iterable[Setting], age_s: float) -> KnownConfig:
    """What is known at start from a snapshot of some age."""
    return KnownConfig(
        settings={setting.key: setting for setting in settings}, confirmed_s=now_s - age_s
    )


def after_listing(
    now_s: float, before: KnownConfig, listing: Listing
) -> tuple[KnownConfig, tuple[Setting, ...]]:
    """What is known once the store has listed all settings, and which are news.

    A store that suddenly has none at all is not believed: what was known stays,
    as stale. A single record that is gone was removed, and that is news.
    """
    if not listing.records and before.settings:
        return replace(before, reason="the store has no settings any more"), ()
    settings, undeliverable = dict(before.settings), dict(before.undeliverable)
    news: list[Setting] = []
    seen = {key_of(record): (record.created, record.modified) for record in listing.records}
    for record in listing.records:
        key = key_of(record)
        if before.seen.get(key) == seen[key]:
            continue
        setting, reason = _deliverable(record, key)
        if setting is None:
            undeliverable[key] = Undeliverable(now_s, reason)
            continue
        undeliverable.pop(key, None)
        if setting != settings.get(key):
            news.append(setting)
        settings[key] = setting
    for key in (settings.keys() | undeliverable.keys()) - seen.keys():
        undeliverable.pop(key, None)
        gone = settings.pop(key, None)
        if gone is not None and gone.is_set:
            news.append(replace(gone, is_set=False, value=None, change=ChangeKind.DELETE))
    return KnownConfig(settings, seen, undeliverable, now_s, ""), tuple(news)


def after_silence(before: KnownConfig, reason: str) -> KnownConfig:
    """What is known when the store has not answered: nothing new."""
    return replace(before, reason=reason)


def _deliverable(record: Record, key: str) -> tuple[Setting | None, str]:
    try:
        setting = setting_from_bytes(record.value, key)
    except ConfigFormatError as error:
        return None, str(error)
    problem = setting.problem()
    return (setting, "") if problem is None else (None, problem)
