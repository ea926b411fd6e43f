"""Waits for changes in Consul, by blocking queries for the names of keys.

A blocking query ends when something below a prefix changed after an index.
That may be more than was asked for (a deeper key, one that only begins alike,
an index that starts again), and a deletion leaves nothing to read. So what is
there now is compared with what was there at the caller's last read, as far as
that is known: listings are remembered by their revision.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from pliska.locks.backends.base import Revision
from pliska.locks.backends.consul_agent import WAIT_ANSWER_S, ConsulAgent
from pliska.locks.backends.keys import directory_of

WAIT_S_MAX = 10.0
"""The longest single query: after it a connection that died unnoticed is given up."""
UNSURE_PAUSE_S = 0.1
"""Bounds how often a caller is told to look when all that is known is that it might help."""
LISTINGS_MAX = 512


class ConsulWatcher:
    """Wakes threads when a path changes. Each waits on a connection of its own."""

    def __init__(self, agent: ConsulAgent, prefix: str) -> None:
        self._agent = agent
        self._prefix = prefix
        self._lock = threading.Lock()
        self._newest = Revision(0)
        self._listings: OrderedDict[tuple[str, Revision], frozenset[str]] = OrderedDict()

    @property
    def newest(self) -> Revision:
        """The greatest revision seen so far; every read that begins now is at least as new."""
        return self._newest

    def saw(self, revision: int) -> None:
        """The store has reached `revision`."""
        with self._lock:
            self._newest = Revision(max(self._newest, revision))

    def _forget(self) -> None:
        with self._lock:
            self._newest = Revision(0)
            self._listings.clear()

    def remember(self, directory: str, revision: Revision, keys: Iterable[str]) -> None:
        """These were the records directly below `directory` at `revision`."""
        with self._lock:
            self._listings[directory, revision] = frozenset(keys)
            self._listings.move_to_end((directory, revision))
            if len(self._listings) > LISTINGS_MAX:
                self._listings.popitem(last=False)

    def wait(self, path: str, after: Revision, timeout_s: float) -> bool:
        """See `Backend.wait_for_change`."""
        until_s = time.monotonic() + timeout_s
        known = self._known(path, after)
        index: int = max(1, after)
        while True:
            asked_s = time.monotonic()
            left_s = max(0.0, until_s - asked_s)
            wait_s = min(left_s, WAIT_S_MAX)
            found, keys = self._agent.wait_for_keys(self._prefix + path, index, wait_s)
            if found <= index and time.monotonic() - asked_s < wait_s / 2:
                # Nothing passed the index, and yet the servers let the query go: they were set
                # back to an older copy.
                self._forget()
                return True
            self.saw(found)
            present = _Present.among(path, (key.removeprefix(self._prefix) for key in keys))
            if known is not None and known.differs(present):
                return True
            if found > index:
                newest, present = self._look(path, left_s + WAIT_ANSWER_S)
                if newest > after or (known is not None and known.differs(present)):
                    return True
                if known is None and not present.record:
                    time.sleep(min(left_s, UNSURE_PAUSE_S))
                    return True
            known = _Known(present.record, present.children)
            index = found if found > after else max(1, after)
            if time.monotonic() >= until_s:
                return False

    def _known(self, path: str, after: Revision) -> "_Known | None":
        """What was there at the caller's last read; None when that is not known.

        Whoever read a path as a record waits for the record, and whoever listed
        it for its children: to know one of the two is enough.
        """
        if after <= 0:
            return _Known(False, frozenset())
        with self._lock:
            siblings = self._listings.get((directory_of(path), after))
            children = self._listings.get((path, after))
        if siblings is None and children is None:
            return None
        return _Known(None if siblings is None else path in siblings, children)

    def _look(self, path: str, timeout_s: float) -> tuple[int, "_Present"]:
        """The revision of the last write that concerns `path`, and what is there."""
        read = self._agent.read_below(self._prefix + path, min(timeout_s, WAIT_S_MAX))
        modified = {
            str(pair["Key"]).removeprefix(self._prefix): int(pair["ModifyIndex"])
            for pair in read.pairs
        }
        self.saw(read.index)
        present = _Present.among(path, modified)
        concerned = [*present.children, *([path] if present.record else [])]
        return max((modified[key] for key in concerned), default=0), present


def is_child(key: str, directory: str) -> bool:
    """Whether `key` is a record directly below `directory`; Consul's own pages make folders too."""
    return directory_of(key) == directory and not key.endswith("/")


@dataclass(frozen=True, slots=True)
class _Present:
    """Whether a path is a record, and the records directly below it."""

    record: bool
    children: frozenset[str]

    @classmethod
    def among(cls, path: str, keys: Iterable[str]) -> "_Present":
        keys = frozenset(keys)
        children = frozenset(key for key in keys if is_child(key, path))
        return cls(path in keys, children)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was there before; None for the part that is not known."""

    record: bool | None
    children: frozenset[str] | None

    def differs(self, present: _Present) -> bool:
        if self.record is not None and self.record != present.record:
            return True
        return self.children is not None and self.children != present.children
