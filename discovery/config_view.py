"""A local copy of the configuration that stays true by itself and outlives outages.

Reading it costs nothing. What the store holds but cannot be delivered (no
setting, or refused by its own schema) leaves the last good value in place.
Watchers see each key's revisions in the order of the store; they may miss some
in between, and end with the last.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from random import Random, SystemRandom

from pliska.discovery.config_snapshot import SnapshotKeeper, read_snapshot
from pliska.discovery.config_store import VALUES
from pliska.discovery.config_watch import ConfigWatch
from pliska.discovery.errors import NoSettingError, SnapshotError
from pliska.discovery.follower import BEGINNING, READ_TIMEOUT_S, Copy, Follower, Keys
from pliska.discovery.known_config import (
    KnownConfig,
    Reading,
    after_listing,
    after_silence,
    from_snapshot,
)
from pliska.discovery.schema import Json
from pliska.discovery.setting import check_key
from pliska.locks import Backend, Clock, Listing, SystemClock
from pliska.locks.closing import Closing

_ALL = ""
"""Watched in place of a key by whoever watches all."""

_log = logging.getLogger(__name__)


class ConfigView(Closing):
    """The configuration as this process knows it. Safe to use from any thread."""

    def __init__(
        self,
        backend: Backend,
        snapshot: Path | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Begin to follow the configuration.

        Args:
            backend: The store.
            snapshot: A file to start from while the store does not answer, and
                to keep for the next time; None for none. One that is damaged is
                logged and replaced.
            clock: Where the time comes from; `SystemClock` unless a test moves it.
            random: Spreads retries; the system's unless a test chooses.
            now: Dates the snapshot.
        """
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._watches: defaultdict[str, set[ConfigWatch]] = defaultdict(set)
        self._known = KnownConfig()
        self._keeper: SnapshotKeeper | None = None
        if snapshot is not None:
            self._known = _recalled(snapshot, backend.address, self._clock, now)
            self._keeper = SnapshotKeeper(snapshot, backend.address, self._clock, now)
        self._listing = Listing((), BEGINNING)
        self._backend = backend
        self._follower = Follower(
            "pliska-config-view", backend.open_feed(), self._clock, random or SystemRandom()
        )
        self._follower.keep(Copy(VALUES, self._read, self._take, self._miss, self._patience_s))

    @property
    def known(self) -> KnownConfig:
        """All that is known now."""
        return self._known

    def get(self, key: str) -> Reading:
        """What a key holds, as far as is known, with its age.

        Raises:
            NoSettingError: It is not set, as far as is known.
            ConfigUsageError: The key is malformed.
        """
        reading = self._known.reading(self._clock.now_s(), key)
        if reading is not None and reading.setting.is_set:
            return reading
        check_key(key)
        reason = f" ({self._known.reason})" if self._known.reason else ""
        raise NoSettingError(f"{key} is not set{reason}")

    def value(self, key: str, default: Json = None) -> Json:
        """What a key holds, as far as is known; `default` when it is not set."""
        setting = self._known.settings.get(key)
        return default if setting is None or not setting.is_set else setting.value

    def wait_until_known(self, timeout_s: float) -> bool:
        """Wait until the store has answered; False when the time passed."""
        until_s = self._clock.now_s() + timeout_s
        with self._changed:
            while self._known.reason:
                if self._clock.now_s() >= until_s:
                    return False
                self._clock.wait(self._changed, until_s)
            return True

    def watch(self, *keys: str) -> ConfigWatch:
        """Follow the changes of some keys, of all when none is named.

        Raises:
            ConfigUsageError: A key is malformed.
        """
        for key in keys:
            check_key(key)
        with self._changed:
            settings = self._known.settings
            current = [settings[key] for key in keys or settings if key in settings]
            watch = ConfigWatch(current, self._clock, self._forget)
            for key in keys or (_ALL,):
                self._watches[key].add(watch)
            return watch

    def close(self) -> None:
        """Follow no longer, and close the watches; what is known stays."""
        self._follower.close()
        with self._changed:
            watches = {watch for watches in self._watches.values() for watch in watches}
        for watch in watches:
            watch.close()

    def _patience_s(self) -> float:
        """Look again when there is something to save."""
        return inf if self._keeper is None else self._keeper.due_in_s

    def _read(self, keys: Keys | None) -> Listing:
        listing = None if keys is None or self._known.reason else self._with_keys_read(keys)
        return listing or self._backend.list(VALUES, READ_TIMEOUT_S)

    def _with_keys_read(self, keys: Keys) -> Listing | None:
        """The last listing with some of its records read anew, if that can be told from them."""
        records = {record.key: record for record in self._listing.records}
        revision = self._listing.revision
        for key in keys:
            record = self._backend.get(key, READ_TIMEOUT_S)
            if record is None or (key in records and record.modified < records[key].modified):
                return None
            records[key] = record
            revision = max(revision, record.modified)
        return Listing(tuple(records.values()), revision)

    def _take(self, listing: Listing) -> None:
        self._listing = listing
        with self._changed:
            before = self._known
            self._known, news = after_listing(self._clock.now_s(), before, listing)
            for setting in news:
                for watch in self._watches.get(setting.key, set()) | self._watches.get(_ALL, set()):
                    watch.offer(setting)
            self._changed.notify_all()
        for key in self._known.undeliverable.keys() - before.undeliverable.keys():
            reason = self._known.undeliverable[key].reason
            _log.warning("a setting is not delivered: key=%s reason=%s", key, reason)
        if self._keeper is not None and not self._known.reason:
            self._keeper.confirmed(self._known.settings.values(), is_changed=bool(news))

    def _miss(self, reason: str) -> None:
        with self._changed:
            self._known = after_silence(self._known, reason)

    def _forget(self, watch: ConfigWatch) -> None:
        with self._changed:
            for key, watches in list(self._watches.items()):
                watches.discard(watch)
                if not watches:
                    del self._watches[key]


def _recalled(path: Path, store: str, clock: Clock, now: Callable[[], datetime]) -> KnownConfig:
    try:
        snapshot = read_snapshot(path)
    except SnapshotError as error:
        _log.warning("%s", error)
        return KnownConfig()
    if snapshot is None:
        return KnownConfig()
    if snapshot.store != store:
        _log.warning("%s is a snapshot of %s, not of %s: ignored", path, snapshot.store, store)
        return KnownConfig()
    return from_snapshot(clock.now_s(), snapshot.settings, snapshot.age_s(now()))
