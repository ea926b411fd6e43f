"""Takes each round to where it is durable: own disk, the standbys' disks, the tip in the store.

In this order, so that a round that is committed is never lost with the machine
that led it. Own disk and standbys are written at the same time. With `every`
above 1 the rounds between two commits are written meanwhile, and one commit
record then stands for all of them. Blocks; called by `stepper` in threads, one
call at a time.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from pliska.coordinator.records.commit import Commit
from pliska.coordinator.records.committer import Committer
from pliska.coordinator.records.update_log import LogEntry, UpdateLog


class Copies(Protocol):
    """Where else entries are kept. `replicas.Replicas` is the real one."""

    async def run(self, head: Commit | None, /) -> None:
        """Look after the copies until cancelled, from the record on that the store names."""

    def send(self, entry: LogEntry) -> None:
        """Begin to copy an entry; entries come in the order of their versions. Does not block."""

    def wait(self, commit: Commit) -> None:
        """Block until enough standbys hold the entry of this commit and all before it.

        Raises:
            GrantLostError: This coordinator no longer leads.
            NotReplicatedError: It is about to end, and they still do not.
        """

    async def caught_up(self) -> None:
        """Return when every coordinator there is holds all that was sent.

        Raises:
            StoreError: It cannot be asked which there are.
            KeyringFormatError: The keyring does not say which there are.
        """

    def hurry(self) -> None:
        """Wait no longer than a moment from now on. From the event loop."""

    def followed(self) -> Collection[int]:
        """Return the versions that the standbys have reached. From any thread."""

    def status(self) -> Mapping[str, Any]:
        """Return who has what, ready for JSON."""


class NoCopies:
    """For whoever keeps entries in one place only."""

    async def run(self, _head: Commit | None, /) -> None:
        """Look after nothing."""
        await asyncio.Event().wait()

    def send(self, entry: LogEntry) -> None:
        """Copy nothing."""

    def wait(self, commit: Commit) -> None:
        """Wait for nobody."""

    async def caught_up(self) -> None:
        """Wait for nobody."""

    def hurry(self) -> None:
        """Wait for nobody anyway."""

    def followed(self) -> Collection[int]:
        """Know of nobody."""
        return ()

    def status(self) -> Mapping[str, Any]:
        """Tell of nobody."""
        return {"wanted": 0, "in_force": 0, "reason": "on this disk only", "standbys": []}


class Ledger:
    """The rounds of one leadership, in order."""

    def __init__(
        self,
        log: UpdateLog,
        copies: Copies,
        committer: Committer,
        head: Commit | None,
        is_due: Callable[[int], bool],
    ) -> None:
        """Go on after the commit that the store names.

        Args:
            log: On this coordinator's disk.
            copies: The standbys.
            committer: Moves the tip in the store.
            head: The record that it stands at.
            is_due: Whether the round that makes this version is committed before
                the next one is taken up.
        """
        self._log = log
        self._copies = copies
        self._committer = committer
        self._is_due = is_due
        self._committed = head
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="log")
        self._writing: list[tuple[Commit, Future[None]]] = []

    @property
    def committed(self) -> Commit | None:
        """The last record that the store names; None before the first."""
        return self._committed

    def append(self, entry: LogEntry) -> None:
        """Take the next round in. Where it is due, it is committed on return.

        Raises:
            StorageError: A log entry could not be written; what was not committed is not.
            GrantLostError: This coordinator no longer leads.
            NotReplicatedError: It is about to end, and too few standbys have the entry.
        """
        self._copies.send(entry)
        writing = self._disk.submit(self._log.write, entry.commit, entry.aggregate, entry.annex)
        self._writing.append((entry.commit, writing))
        if self._is_due(entry.commit.record.version):
            self.flush()

    def flush(self) -> None:
        """Commit all rounds taken in so far.

        Raises:
            StorageError, GrantLostError, NotReplicatedError: As `append`.
        """
        if not self._writing:
            return
        newest, _ = self._writing[-1]
        for _, writing in self._writing:
            writing.result()
        self._copies.wait(newest)
        self._committer.commit(newest)
        self._writing.clear()
        self._committed = newest

    def close(self) -> None:
        """End the thread. What was not committed is not: call `flush` before."""
        self._disk.shutdown()


def due(every: int, checkpoint_every: int, rounds: int) -> Callable[[int], bool]:
    """Return which versions are committed before the next round: see `job_tables.Durable.every`.

    Checkpoints are of committed versions only, so those are always due.
    """

    def is_due(version: int) -> bool:
        return version % every == 0 or version % checkpoint_every == 0 or version >= rounds

    return is_due
