"""The changes of many paths in Consul, by blocking queries that one thread waits for.

A blocking query takes a connection for as long as it waits, and Consul allows a
machine 200 of them. So there are at most `QUERIES_MAX`: as long as that is
enough each path has a query of its own, and its change is heard of at once. More
paths than that take turns of `TURN_S`, so that a change of one of n is heard of
after n * TURN_S / QUERIES_MAX at the latest, at a cost that does not grow with n.
"""

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pliska.locks.backends.consul_agent import WAIT_ANSWER_S, ConsulAgent
from pliska.locks.backends.consul_http import Exchange
from pliska.locks.errors import LockError, StoreUnavailableError
from pliska.locks.process import HomeProcess

QUERIES_MAX = 32
WAIT_S = 10.0
"""The longest single query: after it a connection that died unnoticed is given up."""
TURN_S = 0.5
"""The longest single query where others wait for their turn."""
REFUSED_PAUSE_S = 5.0
"""How long a path is left alone that Consul does not want to answer for."""
NOTHING_PAUSE_S = 0.1
"""Bounds how often Consul is asked about a path where there is nothing."""


@dataclass(eq=False, slots=True)
class _Query:
    """What is known of one path.

    Attributes:
        index: Of its last change that is known; 0 before the first answer.
        is_there: Whether there was anything then.
        exchange: The query on its way, if there is one.
        due_s: When it must have been answered; while there is none, when it may be asked.
    """

    path: str
    index: int = 0
    is_there: bool = False
    exchange: Exchange | None = None
    due_s: float = 0.0


class ConsulFeed:
    """See `ChangeFeed`. Of a path it is never known which keys changed."""

    def __init__(self, agent: ConsulAgent, api_path: Callable[[str], str]) -> None:
        """Follow nothing yet.

        Args:
            agent: Whom to ask.
            api_path: Where in Consul's API a path is found: percent-encoded,
                with a query if it needs one. It refuses what is no path.
        """
        self._agent = agent
        self._api_path = api_path
        self._home = HomeProcess()
        self._lock = threading.Lock()
        self._queries: dict[str, _Query] = {}
        self._idle: deque[_Query] = deque()
        self._asked: dict[int, _Query] = {}
        self._changed: set[str] = set()
        self._is_closed = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def follow(self, path: str) -> None:
        """See `ChangeFeed.follow`."""
        self._home.check()
        self._api_path(path)
        with self._lock:
            if path not in self._queries:
                self._queries[path] = _Query(path)
                self._idle.appendleft(self._queries[path])
        self.wake()

    def forget(self, path: str) -> None:
        """See `ChangeFeed.forget`."""
        with self._lock:
            self._queries.pop(path, None)
        self.wake()

    def wait(self, timeout_s: float) -> Mapping[str, frozenset[str] | None]:
        """See `ChangeFeed.wait`."""
        self._home.check()
        until_s = time.monotonic() + timeout_s
        try:
            is_over = False
            while not self._changed and not is_over:
                for query in self._whose_turn_it_is():
                    self._ask(query)
                is_over = self._hear(until_s) or time.monotonic() >= until_s
        except BaseException:
            self._begin_anew()
            raise
        changed, self._changed = self._changed, set()
        return dict.fromkeys(changed)

    def wake(self) -> None:
        """See `ChangeFeed.wake`."""
        with self._lock:
            if not self._is_closed:
                os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """See `ChangeFeed.close`."""
        self._begin_anew()
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._bell)

    def _whose_turn_it_is(self) -> list[_Query]:
        """The idle queries that there is room for, once those that nobody wants are gone."""
        now_s = time.monotonic()
        with self._lock:
            queries = self._queries
            unwanted = [n for n, each in self._asked.items() if queries.get(each.path) is not each]
            for number in unwanted:
                self._abandon(number)
            room = QUERIES_MAX - len(self._asked)
            chosen: list[_Query] = []
            waiting: deque[_Query] = deque()
            for each in self._idle:
                if queries.get(each.path) is each:
                    has_turn = each.due_s <= now_s and len(chosen) < room
                    (chosen if has_turn else waiting).append(each)
            self._idle = waiting
        return chosen

    def _ask(self, query: _Query) -> None:
        wait_s = WAIT_S if len(self._queries) <= QUERIES_MAX else TURN_S
        # The servers add up to a sixteenth, so that queries do not all end together.
        query.due_s = time.monotonic() + wait_s * 17 / 16 + WAIT_ANSWER_S
        api_path = self._api_path(query.path)
        query.exchange = self._agent.ask_for_change(api_path, query.index, wait_s)
        self._asked[query.exchange.fileno()] = query

    def _hear(self, until_s: float) -> bool:
        """Wait for answers, and take those that come; True when woken."""
        poll = select.poll()
        for number in (self._bell, *self._asked):
            poll.register(number, select.POLLIN)
        now_s = time.monotonic()
        with self._lock:
            due_s = [each.due_s for each in (*self._asked.values(), *self._idle)]
        # Idle ones that are overdue wait for an answer that makes room.
        next_s = min([until_s, *(each for each in due_s if each > now_s)])
        ready = [number for number, _ in poll.poll(max(0.0, next_s - now_s) * 1000)]
        for number in ready:
            if number != self._bell:
                self._take(self._asked[number])
        for query in self._asked.values():
            if query.due_s <= time.monotonic():
                raise StoreUnavailableError(f"Consul did not answer about {query.path!r} in time")
        if self._bell in ready:
            os.eventfd_read(self._bell)
        return self._bell in ready

    def _take(self, query: _Query) -> None:
        """Take the answer to a query, if there is one."""
        exchange = query.exchange
        if exchange is None or not exchange.is_answered():
            return
        del self._asked[exchange.fileno()]
        query.exchange = None
        try:
            index, is_there = self._agent.change_in(exchange)
        except StoreUnavailableError:
            raise
        except LockError:
            # Whoever reads the path now meets the error itself.
            query.index, query.due_s = 0, time.monotonic() + REFUSED_PAUSE_S
            self._changed.add(query.path)
        else:
            self._note(query, index, is_there)
        with self._lock:
            self._idle.append(query)

    def _note(self, query: _Query, index: int, is_there: bool) -> None:
        """See from an answer whether a path has changed."""
        is_first, was_there = query.index == 0, query.is_there
        # An index that went back is a change as well: the servers began anew. But where there
        # is nothing, and was nothing, the index is that of any change anywhere.
        if index != query.index and (is_first or was_there or is_there):
            self._changed.add(query.path)
        query.due_s = 0.0 if is_there else time.monotonic() + NOTHING_PAUSE_S
        query.index, query.is_there = index, is_there

    def _begin_anew(self) -> None:
        """Forget what is known: whatever is followed has perhaps changed."""
        for number in tuple(self._asked):
            self._abandon(number)
        with self._lock:
            self._idle = deque(self._queries.values())
            for query in self._idle:
                query.index, query.due_s = 0, 0.0

    def _abandon(self, number: int) -> None:
        query = self._asked.pop(number)
        if query.exchange is not None:
            query.exchange.abandon()
            query.exchange = None
