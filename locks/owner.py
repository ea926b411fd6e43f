"""Who may enter again what it holds already: a thread, or a task of asyncio.

A thread that works for a task (see `aio`) says so with `acting_for`.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pliska.locks.contender import Contender

_acting_for: ContextVar[object | None] = ContextVar("pliska_lock_owner", default=None)


@contextmanager
def acting_for(owner: object) -> Iterator[None]:
    """Let what this thread acquires belong to `owner`, which can be weakly referenced."""
    token = _acting_for.set(owner)
    try:
        yield
    finally:
        _acting_for.reset(token)


class Holdings:
    """What each owner holds of one lock. Forgets owners that are no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_owner: weakref.WeakKeyDictionary[object, Contender] = weakref.WeakKeyDictionary()

    def mine(self) -> Contender | None:
        """What the calling thread, or the task it works for, holds; None when nothing."""
        with self._lock:
            contender = self._by_owner.get(_owner())
        return contender if contender is not None and contender.is_holding else None

    def add(self, contender: Contender) -> None:
        """Let it be what the calling thread, or the task it works for, holds."""
        with self._lock:
            self._by_owner[_owner()] = contender


def _owner() -> object:
    return _acting_for.get() or threading.current_thread()
