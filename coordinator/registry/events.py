"""What happens in a namespace, in order, from any point on: `pliska model watch`.

Events are the records that are made once and never changed: marks of versions,
entries of aliases' histories, ends of operations. Each has the revision of the store
at which it was made, so revision and key put them in one order, and a cursor is the
last of them that was seen. Nothing is kept for whoever watches.

Directories are read one after the other, so one look may show an event and not
another that came before it. Therefore one looks twice: what the second look shows up to
the newest event of the first is complete.
"""

import logging
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from pliska.coordinator.registry.ended_operations import EndedOperation
from pliska.coordinator.registry.errors import RegistryConflictError, RegistryUsageError
from pliska.coordinator.registry.history import HistoryEntry
from pliska.coordinator.registry.marks import Mark
from pliska.coordinator.registry.namespace import Namespace
from pliska.locks import Record, StoreUnavailableError

CURSOR_CHARACTERS_MAX = 512
WAIT_S = 1.0
"""How long to wait for a change before the caller is asked whether anybody listens."""
LOOK_S = 5.0
"""How often to look though nobody said that anything changed: for new models and aliases."""

_CURSOR = re.compile(r"0|([1-9][0-9]{0,18}):([a-z]+/[a-z0-9][A-Za-z0-9._/-]*)")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place between two events.

    Attributes:
        revision: Of the store, at which the event before it was made; 0 before the first.
        key: Of that event's record, below the namespace's.
    """

    revision: int = 0
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Read what `str` wrote. Raises `RegistryUsageError` where it is none."""
        matched = _CURSOR.fullmatch(text)
        if matched is None or len(text) > CURSOR_CHARACTERS_MAX:
            raise RegistryUsageError(f"{text[:80]!r} is not a cursor that `watch` printed, nor 0")
        return cls() if matched[1] is None else cls(int(matched[1]), matched[2])

    def __str__(self) -> str:
        return f"{self.revision}:{self.key}" if self.revision else "0"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        cursor: The place after it: whoever goes on from there misses nothing.
        record: What happened.
    """

    cursor: Cursor
    record: Mark | HistoryEntry | EndedOperation


@dataclass(frozen=True, slots=True)
class Scope:
    """What is watched: everything, a model, or one alias of it.

    Attributes:
        model: Only this model; None for all.
        alias: Only this alias; None for all, and the versions too.
    """

    model: str | None = None
    alias: str | None = None


class Events:
    """The events of one namespace.

    Args:
        namespace: Which.
        scope: What of it.
        clock_s: Monotonic time.
        pause: Waits so many seconds.
    """

    def __init__(
        self,
        namespace: Namespace,
        scope: Scope,
        clock_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._parts = namespace
        self.scope = scope
        self._clock_s = clock_s
        self._pause = pause
        self._root = f"registry/{namespace.name}/"

    def newest(self) -> Cursor:
        """Return the place after all that has happened."""
        return max(self._look(), default=Cursor())

    def check(self, cursor: Cursor) -> Cursor:
        """Return the cursor.

        Raises:
            RegistryConflictError: It was printed for another store or namespace.
        """
        if cursor != Cursor():
            found = self._parts.backend.get(f"{self._root}{cursor.key}")
            if found is None or found.created != cursor.revision:
                raise RegistryConflictError(
                    f"cursor {cursor} is of another store or namespace: nothing happened here then"
                )
        return cursor

    def after(self, cursor: Cursor) -> list[Event]:
        """Return what has happened since, oldest first; perhaps without the newest.

        Raises:
            IntegrityError: A record is not what its place says.
        """
        seen = self._look()
        newest = max(seen, default=cursor)
        if newest <= cursor:
            return []
        complete = self._look()
        places = sorted(place for place in complete if cursor < place <= newest)
        return [Event(place, self._read(complete[place])) for place in places]

    def follow(self, cursor: Cursor) -> Iterator[Event | None]:
        """Yield what happens after the cursor, for ever.

        None comes now and then while nothing happens, so that the caller can look
        whether anybody still listens. While the store does not answer, nothing happens.
        """
        looked_s = -math.inf  # when all there was had been told
        with closing(self._parts.backend.open_feed()) as feed:
            while True:
                try:
                    if feed.wait(WAIT_S) or self._clock_s() - looked_s > LOOK_S:
                        began_s, looked_s = self._clock_s(), -math.inf
                        for directory in self._directories():
                            feed.follow(directory)
                        for event in self.after(cursor):
                            cursor = event.cursor
                            yield event
                        looked_s = began_s
                except StoreUnavailableError as error:
                    _log.warning("no answer: reason=%s", error)
                    self._pause(WAIT_S)
                yield None

    def _look(self) -> dict[Cursor, Record]:
        """Return the records of all events that can be seen now, by their place."""
        found = (
            record
            for directory in self._directories()
            for record in self._parts.backend.list(directory).records
        )
        return {
            Cursor(record.created, record.key.removeprefix(self._root)): record for record in found
        }

    def _read(self, record: Record) -> Mark | HistoryEntry | EndedOperation:
        match record.key.removeprefix(self._root).partition("/")[0]:
            case "marks":
                return self._parts.marks.read(record)
            case "history":
                return self._parts.aliases.entry(record)
        return self._parts.operations.read_ended(record)

    def _directories(self) -> Iterator[str]:
        """Yield the directories that events appear in."""
        parts, scope = self._parts, self.scope
        for model in parts.versions.models() if scope.model is None else [scope.model]:
            if scope.alias is None:
                yield parts.keys.marks(model)
            names = parts.aliases.of_model(model) if scope.alias is None else [scope.alias]
            for alias in names:
                yield parts.keys.history(model, alias)
                yield parts.keys.ended(model, alias)
