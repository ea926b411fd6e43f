"""The coordination store as simulated processes see it: the memory store, and what goes wrong.

A process that is dead changes nothing. One that is cut off gets no answer; an
answer may also be lost after the store has done what was asked.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from simulation.virtual_loop import CURRENT, Killed, Process

from pliska.locks import OutcomeUnknownError, StoreUnavailableError
from pliska.locks.backends.listening_feed import ListeningFeed
from pliska.locks.backends.memory import MemoryBackend, MemorySession
from pliska.locks.backends.memory_store import MemoryStore


class Troubles:
    """What goes wrong between processes and the store."""

    def __init__(self, lots: Random) -> None:
        self.lots = lots
        self.failing = 0.0
        self.losing = 0.0
        self._cut_until: dict[str, float] = {}

    def cut(self, process: Process, seconds: float) -> None:
        """Let a process not reach the store for a while."""
        self._cut_until[process.name] = process.loop.time() + seconds

    def calm(self) -> None:
        """Let everything through again."""
        self.failing = self.losing = 0.0
        self._cut_until.clear()

    def before(self, process: Process) -> None:
        """Raise where a call does not reach the store."""
        if process.is_dead or CURRENT.get() is not process:
            raise Killed
        is_cut = self._cut_until.get(process.name, 0.0) > process.loop.time()
        if is_cut or self.lots.random() < self.failing:
            raise StoreUnavailableError("the store does not answer")

    def after_write(self) -> None:
        """Raise where the answer of a write is lost."""
        if self.lots.random() < self.losing:
            raise OutcomeUnknownError("the answer was lost")


class SimulatedBackend(MemoryBackend):
    """One process's hold on the store."""

    def __init__(self, store: MemoryStore, process: Process, troubles: Troubles) -> None:
        super().__init__(store, "memory:")
        self._process = process
        self._troubles = troubles

    def open_session(self, *arguments: Any, **options: Any) -> MemorySession:
        """See `Backend.open_session`; its renewals fail as other calls do."""
        self._troubles.before(self._process)
        session = super().open_session(*arguments, **options)
        session.renew = self._guarded(session.renew)  # type: ignore[method-assign]
        session.close = self._guarded(session.close)  # type: ignore[method-assign]
        return session

    def get(self, *arguments: Any, **options: Any) -> Any:
        """See `Backend.get`."""
        return self._guarded(super().get)(*arguments, **options)

    def list(self, *arguments: Any, **options: Any) -> Any:
        """See `Backend.list`."""
        return self._guarded(super().list)(*arguments, **options)

    def directories(self, *arguments: Any, **options: Any) -> Any:
        """See `Backend.directories`."""
        return self._guarded(super().directories)(*arguments, **options)

    def wait_for_change(self, *arguments: Any, **options: Any) -> Any:
        """See `Backend.wait_for_change`."""
        return self._guarded(super().wait_for_change)(*arguments, **options)

    def open_feed(self) -> ListeningFeed:
        """See `Backend.open_feed`; its waits fail as other calls do."""
        feed = super().open_feed()
        feed.wait = self._guarded(feed.wait)  # type: ignore[method-assign]
        return feed

    def transact(self, *arguments: Any, **options: Any) -> Any:
        """See `Backend.transact`."""
        revision = self._guarded(super().transact)(*arguments, **options)
        self._troubles.after_write()
        return revision

    def _guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **options: Any) -> Any:
            self._troubles.before(self._process)
            return call(*arguments, **options)

        return guarded
