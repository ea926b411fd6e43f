"""Configuration in the store: read, set, compare and set, history, rollback.

Everything here goes to the store; a copy that follows it and outlives outages
is `config_view`. Every write is one transaction that replaces the setting and
adds its revision to the history, so neither exists without the other.

    config/values/<key>               the setting now (JSON), `setting`
    config/history/<key>/<revision>   each of its last `HISTORY_MAX` revisions
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pliska.discovery.errors import (
    ConfigConflictError,
    ConfigFormatError,
    ConfigUsageError,
    NoSettingError,
    ValueRefusedError,
)
from pliska.discovery.schema import Json, Schema
from pliska.discovery.setting import (
    ChangeKind,
    Setting,
    check_key,
    check_note,
    setting_from_bytes,
)
from pliska.locks import (
    Backend,
    Change,
    Check,
    ConflictError,
    Create,
    Delete,
    Record,
    Unmodified,
    Update,
)
from pliska.locks.backends.base import Absent

VALUES = "config/values"
HISTORY = "config/history"
HISTORY_MAX = 100
"""Revisions kept of each key."""
ATTEMPTS_MAX = 100
"""How often a write without an expected revision is tried against others' writes."""


@dataclass(frozen=True, slots=True)
class Authorship:
    """Who changes the configuration and why; for people who read the history."""

    author: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        check_note("author", self.author)
        check_note("note", self.note)


ANONYMOUS = Authorship()


@dataclass(frozen=True, slots=True)
class ConfigListing:
    """All keys of a store, sorted.

    Attributes:
        settings: Those that can be delivered, with or without a value.
        problems: Why others cannot be, by key.
    """

    settings: tuple[Setting, ...]
    problems: dict[str, str]


class ConfigStore:
    """The configuration in one store. Safe to use from any thread.

    Every method may also raise the store's own errors (`pliska.locks.StoreError`),
    `ConfigUsageError` for a malformed key, and `ConfigFormatError` for what is
    stored and cannot be delivered: it is not a setting, or its own schema
    refuses it.
    """

    def __init__(
        self, backend: Backend, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Use the store behind `backend`; `now` dates what is written."""
        self._backend = backend
        self._now = now

    def get(self, key: str) -> Setting:
        """The setting of a key that has a value.

        Raises:
            NoSettingError: It has none.
        """
        setting = self.look_up(key)
        if setting is None or not setting.is_set:
            raise NoSettingError(f"{key} is not set")
        return setting

    def look_up(self, key: str) -> Setting | None:
        """The setting of a key, with or without a value; None when there never was one."""
        setting = self._read(key)[1]
        if setting is not None:
            _require_deliverable(setting)
        return setting

    def schema(self, key: str) -> Schema | None:
        """What a key may hold, even when what it holds is refused; None for anything."""
        setting = self._read(key)[1]
        return None if setting is None else setting.schema

    def list(self) -> ConfigListing:
        """All keys."""
        settings, problems = [], {}
        for record in self._backend.list(VALUES).records:
            key = key_of(record)
            try:
                setting = setting_from_bytes(record.value, key)
                _require_deliverable(setting)
            except ConfigFormatError as error:
                problems[key] = str(error)
            else:
                settings.append(setting)
        settings.sort(key=lambda setting: setting.key)
        return ConfigListing(tuple(settings), problems)

    def set(
        self,
        key: str,
        value: Json,
        expected: int | None = None,
        by: Authorship = ANONYMOUS,
    ) -> Setting:
        """Give a key a value.

        Args:
            key: The key.
            value: What JSON can say and the key's schema allows.
            expected: Its present revision, 0 for a key that never was; None
                overwrites whatever is there.
            by: For the history.

        Returns:
            The new revision.

        Raises:
            ValueRefusedError: The schema refuses the value, or it is no JSON.
            ConfigConflictError: The key is at another revision than `expected`.
        """

        def changed(before: Setting) -> Setting:
            return replace(before, is_set=True, value=value, change=ChangeKind.SET)

        return self._write(key, changed, expected, by)

    def delete(self, key: str, expected: int | None = None, by: Authorship = ANONYMOUS) -> Setting:
        """Take a key's value away; its schema and history stay.

        Raises:
            NoSettingError: It has no value.
            ConfigConflictError: The key is at another revision than `expected`.
        """

        def changed(before: Setting) -> Setting:
            if not before.is_set:
                raise NoSettingError(f"{key} is not set")
            return replace(before, is_set=False, value=None, change=ChangeKind.DELETE)

        return self._write(key, changed, expected, by)

    def declare(self, key: str, schema: Schema | None, by: Authorship = ANONYMOUS) -> Setting:
        """Say what a key may hold from now on; None allows anything.

        A value that the new schema refuses stays in the store and is not
        delivered until it is set anew; `Setting.problem` of the result tells.
        """

        def changed(before: Setting) -> Setting:
            return replace(before, schema=schema, change=ChangeKind.SCHEMA)

        return self._write(key, changed, None, by)

    def history(self, key: str) -> tuple[Setting, ...]:
        """The last `HISTORY_MAX` revisions of a key, newest first."""
        check_key(key)
        records = self._backend.list(f"{HISTORY}/{key}").records
        settings = [setting_from_bytes(record.value, key) for record in records]
        return tuple(sorted(settings, key=lambda setting: setting.revision, reverse=True))

    def roll_back(self, key: str, revision: int, by: Authorship = ANONYMOUS) -> Setting:
        """Give a key the value, or the absence of one, that it had at a revision.

        This makes a new revision. The schema of today holds, also for the old value.

        Raises:
            NoSettingError: The history does not have the revision.
            ValueRefusedError: The schema of today refuses the value.
        """
        for setting in self.history(key):
            if setting.revision == revision:
                return self._restore(setting, by)
        raise NoSettingError(
            f"{key} has no revision {revision}: `pliska config history {key}` shows those it has"
        )

    def roll_back_to_time(self, key: str, at: datetime, by: Authorship = ANONYMOUS) -> Setting:
        """As `roll_back`, to the revision that was in force at a time, by the writers' clocks.

        Raises:
            ConfigUsageError: The time has no zone.
            NoSettingError: The history does not reach back so far.
            ValueRefusedError: The schema of today refuses the value.
        """
        if at.tzinfo is None:
            raise ConfigUsageError(f"{at.isoformat()} has no time zone: end it with Z or +02:00")
        for setting in self.history(key):
            if setting.written_at <= at:
                return self._restore(setting, by)
        raise NoSettingError(f"the history of {key} does not reach back to {at.isoformat()}")

    def _restore(self, old: Setting, by: Authorship) -> Setting:
        def changed(before: Setting) -> Setting:
            return replace(before, is_set=old.is_set, value=old.value, change=ChangeKind.ROLLBACK)

        note = by.note or f"back to revision {old.revision}"
        return self._write(old.key, changed, None, replace(by, note=note))

    def _write(
        self,
        key: str,
        changed: Callable[[Setting], Setting],
        expected: int | None,
        by: Authorship,
    ) -> Setting:
        for _ in range(ATTEMPTS_MAX if expected is None else 1):
            record, stored = self._read(key)
            before = stored or self._unborn(key)
            if expected is not None and before.revision != expected:
                raise ConfigConflictError(
                    f"{key} is at revision {before.revision}, not at {expected}: read it again"
                )
            after = self._next_revision(before, changed(before), by)
            try:
                self._commit(record, after)
            except ConflictError:
                continue  # somebody else was faster
            return after
        raise ConfigConflictError(f"{key} is being changed by somebody else: read it again")

    def _next_revision(self, before: Setting, after: Setting, by: Authorship) -> Setting:
        after = replace(
            after,
            revision=before.revision + 1,
            # The order of revisions is the order of their times, whatever the clocks say.
            written_at=max(self._now(), before.written_at),
            author=by.author,
            note=by.note,
        )
        problem = after.problem()
        if problem is not None and after.change is not ChangeKind.SCHEMA:
            raise ValueRefusedError(problem)
        return after

    def _commit(self, record: Record | None, after: Setting) -> None:
        content = after.to_bytes()
        value_key = f"{VALUES}/{after.key}"
        changes: list[Change] = [Create(_history_key(after.key, after.revision), content)]
        checks: list[Check] = []
        if record is None:
            checks.append(Absent(value_key))
            changes.append(Create(value_key, content))
        else:
            checks.append(Unmodified(value_key, record.modified))
            changes.append(Update(value_key, content))
        outdated = _history_key(after.key, max(0, after.revision - HISTORY_MAX))
        if after.revision > HISTORY_MAX and self._backend.get(outdated) is not None:
            changes.append(Delete(outdated))
        self._backend.transact(checks, changes)

    def _read(self, key: str) -> tuple[Record | None, Setting | None]:
        check_key(key)
        record = self._backend.get(f"{VALUES}/{key}")
        return record, None if record is None else setting_from_bytes(record.value, key)

    def _unborn(self, key: str) -> Setting:
        """What a key without a record counts on from: where its history ends."""
        last = next(iter(self.history(key)), None)
        return Setting(
            key=key,
            revision=0 if last is None else last.revision,
            is_set=False,
            change=ChangeKind.DELETE,
            written_at=datetime.min.replace(tzinfo=UTC) if last is None else last.written_at,
        )


def key_of(record: Record) -> str:
    """The configuration key of a record below `VALUES`."""
    return record.key.removeprefix(f"{VALUES}/")


def _require_deliverable(setting: Setting) -> None:
    problem = setting.problem()
    if problem is not None:
        raise ConfigFormatError(f"the stored value of {setting.key} is not delivered: {problem}")


def _history_key(key: str, revision: int) -> str:
    return f"{HISTORY}/{key}/{revision:012d}"
