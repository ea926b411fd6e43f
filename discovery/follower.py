"""Keeps many local copies of what is in the store true, in one thread.

Read, hand over what was read, wait until something changes, read that again. A
read that fails is reported and repeated with growing, jittered pauses; whoever
holds a copy keeps it. Whatever was missed during an outage is made up by the
first read after it.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from random import Random
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from pliska.discovery.retry import retry_pause_s
from pliska.locks import Clock, LockError, Revision, StoreError
from pliska.locks.backends.base import ChangeFeed
from pliska.locks.errors import ForkedProcessError, StoreUnavailableError

CONFIRM_S = 5.0
"""Read anew after so long without a change: an outage is noticed, and the copy's age is small."""
CONFIRMS_PER_S_MAX = 4.0
"""Where there are many copies they are read anew less often, so that this is not exceeded."""
WAIT_S_MAX = 5.0
"""The longest single wait for a change."""
REST_S_MAX = 0.01
"""Reading takes half of the time at most, by pauses up to this, so that bursts cost few reads."""
READ_TIMEOUT_S = 5.0
BACKWARD_PATIENCE_S = 3.0
"""How long answers may be older than what was seen before they are believed."""

BEGINNING = Revision(0)
"""Before everything."""

Keys = frozenset[str]
"""Of records, by their names in the store."""

_NOTHING: Mapping[str, Keys | None] = MappingProxyType({})


class Versioned(Protocol):
    """An answer of the store."""

    @property
    def revision(self) -> Revision:
        """How new it is."""


AnswerT = TypeVar("AnswerT", bound=Versioned)


@dataclass(frozen=True, eq=False, slots=True)
class Copy(Generic[AnswerT]):
    """Somebody's copy of what the store has under one path, served by one thread.

    Attributes:
        path: What the feed calls it.
        read: Reads what may have changed: at least the keys, all for None.
        take: Gets each answer that `admit` lets through.
        miss: Gets the reason when there is no such answer.
        patience_s: After how long it wants to be read again though nothing changed.
    """

    path: str
    read: Callable[[Keys | None], AnswerT]
    take: Callable[[AnswerT], None]
    miss: Callable[[str], None]
    patience_s: Callable[[], float] = lambda: inf


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a copy has come.

    Attributes:
        revision: Of the newest answer that was taken.
        backward_since_s: When answers began to be older than that; None while they are not.
    """

    revision: Revision = BEGINNING
    backward_since_s: float | None = None


def admit(now_s: float, progress: Progress, revision: Revision) -> tuple[bool, str, Progress]:
    """Whether to take an answer, why, and the progress after it.

    An older answer comes from a server that lags behind, and the copy must not
    go back in time. If it stays older, the store itself has gone back (it was
    restored, or its counter started anew), and the copy follows.

    Args:
        now_s: The time.
        progress: How far the copy has come.
        revision: The answer's.
    """
    if revision >= progress.revision:
        return True, "not older than what was seen", Progress(revision)
    since_s = now_s if progress.backward_since_s is None else progress.backward_since_s
    if now_s - since_s >= BACKWARD_PATIENCE_S:
        return True, f"the store has gone back to revision {revision}", Progress(revision)
    reason = f"revision {revision} is older than {progress.revision}, which was seen before"
    return False, reason, Progress(progress.revision, since_s)


@dataclass(eq=False, slots=True)
class _Kept:
    """A copy and when to read it.

    Attributes:
        keys: What the feed has named since it was last read.
        due_s: When to read all of it even if nothing is named.
        failures: How many readings in a row had no answer that could be taken.
    """

    copy: Copy[Any]
    progress: Progress = field(default_factory=Progress)
    keys: Keys | None = frozenset()
    due_s: float = inf
    failures: int = 0

    def is_due(self, now_s: float) -> bool:
        is_named = self.keys is None or len(self.keys) > 0
        return now_s >= self.due_s or (is_named and not self.failures)

    def name(self, keys: Keys | None) -> None:
        self.keys = None if keys is None or self.keys is None else self.keys | keys


class Follower:
    """The thread, which begins with the first copy. Safe to use from any thread."""

    def __init__(
        self,
        name: str,
        feed: ChangeFeed,
        clock: Clock,
        random: Random,
        confirm_s: float = CONFIRM_S,
    ) -> None:
        """Keep nothing yet.

        Args:
            name: Of the thread.
            feed: Says what changed; closed in the end.
            clock: Where the time comes from.
            random: Spreads retries and confirmations.
            confirm_s: Copies are read anew after so long without a change; longer
                where nobody asks for their age.
        """
        self._name = name
        self._feed = feed
        self._clock = clock
        self._random = random
        self._confirm_s = confirm_s
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._next_s = inf
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def keep(self, copy: Copy[Any]) -> None:
        """Keep a copy true until it is forgotten; there is one for a path."""
        with self._lock:
            self._kept[copy.path] = _Kept(copy)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._feed.follow(copy.path)

    def forget(self, copy: Copy[Any]) -> None:
        """Leave a copy as it is, except for what is being handed over just now."""
        with self._lock:
            self._kept.pop(copy.path, None)
        self._feed.forget(copy.path)

    def close(self) -> None:
        """Leave all copies as they are, except for what is being handed over just now."""
        with self._lock:
            self._closed.set()
            was_started = self._thread is not None
        if was_started:
            self._feed.wake()
        else:
            self._feed.close()

    def join(self, timeout_s: float) -> None:
        """Wait, after `close`, until the thread has freed what it had, but no longer than this."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        failures, changed = 0, _NOTHING
        while not self._closed.is_set():
            try:
                self._read_all(self._due(changed))
                wait_s = max(0.0, self._next_s - self._clock.now_s())
                changed = self._feed.wait(min(WAIT_S_MAX, wait_s))
                failures = 0
            except ForkedProcessError:
                break
            except StoreError as error:
                failures, changed = failures + 1, _NOTHING
                self._miss_all(str(error))
                self._closed.wait(retry_pause_s(failures, self._random))
        self._feed.close()

    def _due(self, changed: Mapping[str, Keys | None]) -> list[_Kept]:
        """What to read now: what the feed has named, and what is due without that."""
        now_s = self._clock.now_s()
        with self._lock:
            named = [self._kept[path] for path in changed if path in self._kept]
            copies = list(self._kept.values()) if now_s >= self._next_s else named
        for kept in named:
            kept.name(changed[kept.copy.path])
        if now_s >= self._next_s:
            self._next_s = min((each.due_s for each in copies if each.due_s > now_s), default=inf)
        return [each for each in copies if each.is_due(now_s)]

    def _read_all(self, due: list[_Kept]) -> None:
        """Read, and rest for as long as that took.

        Raises:
            StoreUnavailableError: The store does not answer, so no copy can be read.
        """
        began_s = self._clock.now_s()
        for kept in due:
            if self._is_kept(kept):
                self._read(kept)
        self._closed.wait(min(REST_S_MAX, self._clock.now_s() - began_s))

    def _read(self, kept: _Kept) -> None:
        now_s = self._clock.now_s()
        keys = None if now_s >= kept.due_s else kept.keys
        kept.keys = frozenset()
        try:
            answer = kept.copy.read(keys)
        except (StoreUnavailableError, ForkedProcessError):
            self._put_last(kept)
            raise
        except LockError as error:
            self._retry(kept, str(error))
            return
        is_taken, reason, kept.progress = admit(now_s, kept.progress, answer.revision)
        if not is_taken:
            self._retry(kept, reason)
            return
        kept.failures = 0
        if self._is_kept(kept):
            kept.copy.take(answer)
        due_s = kept.due_s
        if keys is None:
            # Confirming reads of many copies do not all come at once.
            interval_s = max(self._confirm_s, len(self._kept) / CONFIRMS_PER_S_MAX)
            due_s = now_s + interval_s * (0.75 + 0.25 * self._random.random())
        self._schedule(kept, min(due_s, now_s + kept.copy.patience_s()))

    def _retry(self, kept: _Kept, reason: str) -> None:
        kept.failures += 1
        pause_s = retry_pause_s(kept.failures, self._random)
        self._schedule(kept, self._clock.now_s() + pause_s)
        if self._is_kept(kept):
            kept.copy.miss(reason)

    def _miss_all(self, reason: str) -> None:
        with self._lock:
            copies = list(self._kept.values())
        for kept in copies:
            self._schedule(kept, self._clock.now_s())
            if self._is_kept(kept):
                kept.copy.miss(reason)

    def _schedule(self, kept: _Kept, due_s: float) -> None:
        kept.due_s = due_s
        self._next_s = min(self._next_s, due_s)

    def _is_kept(self, kept: _Kept) -> bool:
        with self._lock:
            return not self._closed.is_set() and self._kept.get(kept.copy.path) is kept

    def _put_last(self, kept: _Kept) -> None:
        """Try the others first the next time: perhaps this one makes the store silent."""
        with self._lock:
            if self._kept.get(kept.copy.path) is kept:
                self._kept[kept.copy.path] = self._kept.pop(kept.copy.path)
